// SPDX-License-Identifier: GPL-3.0-or-later
// Rotation of q and k, and what is stored, against the host's.
#include <cmath>

#include "gpu/host/kv_codes.h"
#include "tests/gpu/cuda/support.h"

namespace granary::gpu::cuda::test {
namespace {

// The f32 values of a cell's heads.
std::vector<float> cell_values(const std::byte* layer, size_t step_bytes, const KvPart& part,
                               uint32_t kv_heads, uint32_t dim, uint32_t cell) {
    std::vector<float> values(size_t{kv_heads} * dim);
    const std::byte* const step = layer + cell / kStepCells * step_bytes;
    const size_t row = cell % kStepCells;
    for (uint32_t h = 0; h < kv_heads; ++h) {
        const std::byte* const codes =
            step + part.code_offset + row * part.code_row + h * kv_code_bytes(part.codes, dim);
        float* const to = values.data() + size_t{h} * dim;
        if (part.codes == KvCodes::f32)
            std::memcpy(to, codes, dim * sizeof(float));
        else if (part.codes == KvCodes::f16)
            for (uint32_t i = 0; i < dim; ++i) to[i] = host::load_half(codes + 2 * i);
        else
            host::decode_rows(part.codes,
                              {codes,
                               step + part.scale_offset + row * part.scale_row +
                                   h * kv_scale_bytes(part.codes, dim),
                               part.code_row, part.scale_row, 1},
                              dim, to, dim);
    }
    return values;
}

// Every pair slower by another factor, and larger or smaller than before.
std::shared_ptr<const RopeTable> stretched(uint32_t dims, double base, float magnitude) {
    RopeTable table = *rope_table(dims, base);
    for (uint32_t i = 0; i < table.pairs(); ++i) table.turns[i] /= 1.0 + 3.0 * i / dims;
    table.magnitude = magnitude;
    return std::make_shared<RopeTable>(std::move(table));
}

struct Case {
    AttentionShape shape;
    uint32_t first_cell, n;
    bool norms;
};

const Case kCases[] = {
    {{.heads = 32, .kv_heads = 4, .head_dim = 128, .rope = rope_table(128, 1e6)}, 0, 70, true},
    {{.heads = 16, .kv_heads = 2, .head_dim = 256, .rope = stretched(64, 1e7, 1.07f)},
     1000,
     40,
     true},
    {{.heads = 3, .kv_heads = 1, .head_dim = 24, .rope = rope_table(10, 1e4)}, 1023, 2, false},
    {{.heads = 2, .kv_heads = 2, .head_dim = 80, .rope = stretched(80, 1e4, 0.9f)}, 2040, 9, true},
    {{.heads = 4, .kv_heads = 2, .head_dim = 64, .rope = rope_table(64, 1e6)}, 900001, 3, true},
};

TEST_F(CudaTest, RopeStoreInEveryFormat) {
    Random random(12);
    for (const KvFormat format :
         {KvFormat::f16, KvFormat::int8, KvFormat::k8v4, KvFormat::q4, KvFormat::f32}) {
        for (const Case& at : kCases) {
            const AttentionShape& shape = at.shape;
            const uint32_t dim = shape.head_dim;
            const size_t q_count = size_t{at.n} * shape.heads * dim;
            const size_t k_count = size_t{at.n} * shape.kv_heads * dim;
            std::vector<float> q = random.values(q_count);
            const std::vector<float> k = random.values(k_count), v = random.values(k_count);
            const std::vector<float> q_norm = random.values(dim), k_norm = random.values(dim);
            const KvParts parts = kv_parts(format, shape.kv_heads, dim);
            // Only the steps that are written exist; the base lies before them.
            const uint32_t step = at.first_cell / kStepCells;
            const uint32_t steps = (at.first_cell + at.n - 1) / kStepCells - step + 1;
            const size_t step_bytes = parts.bytes + 4096, offset = 1024;
            std::vector<std::byte> expected(steps * step_bytes, std::byte{0xff});
            const Array<std::byte> stored(gpu(), expected.size());
            const auto view = [&](std::byte* first) {
                KvView kv{first + offset - step * step_bytes, step_bytes, parts.k, parts.v};
                return kv;
            };
            const Array<float> q_card(gpu(), q), k_card(gpu(), k), v_card(gpu(), v);
            const Array<float> q_weights(gpu(), q_norm), k_weights(gpu(), k_norm);
            host().rope_store(shape, at.norms ? q_norm.data() : nullptr,
                              at.norms ? k_norm.data() : nullptr, at.first_cell, at.n, q.data(),
                              k.data(), v.data(), view(expected.data()));
            kernels().rope_store(shape, at.norms ? q_weights.data() : nullptr,
                                 at.norms ? k_weights.data() : nullptr, at.first_cell, at.n, q_card,
                                 k_card, v_card, view(stored));
            const std::string what = std::string(kv_format_name(format)) + " " +
                                     std::to_string(dim) + " " + std::to_string(at.first_cell);
            // f32 sums in another order; a sine and a cosine of 1 to 3 units of 2^-24.
            EXPECT_LT(distance(q_card.get(), q), 1e-6) << what;
            const std::vector<std::byte> got = stored.get();
            for (const KvPart* part : {&parts.k, &parts.v}) {
                double worst = 0;
                for (uint32_t i = 0; i < at.n; ++i) {
                    const uint32_t cell = at.first_cell + i - step * kStepCells;
                    const auto from = [&](const std::vector<std::byte>& all) {
                        return cell_values(all.data() + offset, step_bytes, *part, shape.kv_heads,
                                           dim, cell);
                    };
                    worst = std::max(worst, distance(from(got), from(expected)));
                }
                // Here and there a value that lies between two codes goes the other way: a value in
                // thousands. int8 codes are 1/127 of the largest apart, 4-bit ones 1/7.
                const double limits[] = {3e-4, 1e-6, 2e-3, 3e-2};
                EXPECT_LT(worst, limits[static_cast<size_t>(part->codes)])
                    << what << (part == &parts.k ? " k" : " v");
            }
            // V in int8 and the scales of all: no arithmetic on the way that could differ.
            if (format == KvFormat::int8)
                for (uint32_t i = 0; i < at.n; ++i) {
                    const uint32_t cell = at.first_cell + i - step * kStepCells;
                    const size_t place = offset + cell / kStepCells * step_bytes +
                                         parts.v.code_offset + cell % kStepCells * parts.v.code_row;
                    EXPECT_EQ(std::memcmp(&got[place], &expected[place], parts.v.code_row), 0);
                }
            // Nothing else was written.
            size_t written = 0, expected_written = 0;
            for (size_t i = 0; i < offset; ++i) EXPECT_EQ(got[i], std::byte{0xff});
            for (size_t i = got.size() - 3000; i < got.size(); ++i) {
                written += got[i] != std::byte{0xff};
                expected_written += expected[i] != std::byte{0xff};
            }
            EXPECT_EQ(written, expected_written);
        }
    }
}

TEST_F(CudaTest, RopeStoreOfPairsIsTheHosts) {
    Random random(14);
    // Heads that rotate whole, in part, and of a size without code of its own; at a place in
    // memory.
    for (const auto& [dim, rotated] : {std::pair{256u, 64u}, {128u, 128u}, {40u, 40u}}) {
        const AttentionShape shape{
            .heads = 6, .kv_heads = 2, .head_dim = dim, .rope = rope_table(rotated, 1e4)};
        const KvParts parts = kv_parts(KvFormat::f32, 2, dim);
        const std::vector<float> k = random.values(3 * 2 * dim), norm = random.values(dim),
                                 pairs = random.values(3 * 6 * 2 * dim);
        std::vector<float> q(3 * 6 * dim);
        std::vector<std::byte> expected(parts.bytes, std::byte{0xff});
        host().rope_store_of_pairs(shape, norm.data(), norm.data(), 9, 3, pairs.data(), q.data(),
                                   k.data(), k.data(),
                                   {expected.data(), parts.bytes, parts.k, parts.v});
        const Array<float> on_card(gpu(), pairs), k_card(gpu(), k), weight(gpu(), norm),
            taken(gpu(), q.size());
        const Array<std::byte> stored(gpu(), parts.bytes);
        const DecodePlace now{stored, 9, 1};
        const Array<DecodePlace> place(gpu(), std::span<const DecodePlace>(&now, 1));
        KvView view{nullptr, parts.bytes, parts.k, parts.v};
        view.place = place;
        kernels().rope_store_of_pairs(shape, weight, weight, 0, 3, on_card, taken, k_card, k_card,
                                      view);
        EXPECT_LT(distance(taken.get(), q), 1e-6) << dim;
        const std::vector<std::byte> got = stored.get();
        for (const KvPart* part : {&parts.k, &parts.v})
            for (uint32_t cell = 9; cell < 12; ++cell) {
                const auto from = [&](const std::vector<std::byte>& all) {
                    return cell_values(all.data(), parts.bytes, *part, 2, dim, cell);
                };
                EXPECT_LT(distance(from(got), from(expected)), 1e-6) << dim << " " << cell;
            }
    }
}

TEST_F(CudaTest, RopeStoreReadsItsPlaceFromMemory) {
    Random random(13);
    const AttentionShape shape{
        .heads = 4, .kv_heads = 2, .head_dim = 128, .rope = rope_table(128, 1e4)};
    const KvParts parts = kv_parts(KvFormat::q4, 2, 128);
    const std::vector<float> q = random.values(2 * 512), k = random.values(2 * 256);
    const Array<std::byte> a(gpu(), 2 * parts.bytes), b(gpu(), 2 * parts.bytes);
    const Array<float> q_a(gpu(), q), q_b(gpu(), q), k_card(gpu(), k);
    const DecodePlace now{b, 1023, 7};
    const Array<DecodePlace> place(gpu(), std::span<const DecodePlace>(&now, 1));
    kernels().rope_store(shape, nullptr, nullptr, 1023, 2, q_a, k_card, k_card,
                         {a, parts.bytes, parts.k, parts.v});
    KvView placed{nullptr, parts.bytes, parts.k, parts.v};
    placed.place = place;
    kernels().rope_store(shape, nullptr, nullptr, 5, 2, q_b, k_card, k_card, placed);
    EXPECT_TRUE(same_bits(q_a.get(), q_b.get()));
    EXPECT_EQ(a.get(), b.get());
}

}  // namespace
}  // namespace granary::gpu::cuda::test

// SPDX-License-Identifier: GPL-3.0-or-later
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "gpu/host/host_kernels.h"
#include "gpu/host/kv_codes.h"
#include "tests/gpu/kernels_support.h"

namespace granary::gpu::test {
namespace {

using host::HostKernels;
using host::ThreadPool;

// K/V of one of two layers, with every byte that no token has written a NaN.
struct Cells {
    std::vector<std::byte> memory;
    KvView view;
    AttentionShape shape;
    Cells(const AttentionShape& attention, KvFormat format, uint32_t count) : shape(attention) {
        const KvParts parts = kv_parts(format, shape.kv_heads, shape.head_dim);
        view = {nullptr, 2 * parts.bytes, parts.k, parts.v, nullptr, 0};
        memory.assign((count + kStepCells - 1) / kStepCells * view.step_bytes, std::byte{0xff});
        view.base = memory.data() + parts.bytes;
    }
    // One head of one cell as it is kept, rotated where it is.
    std::vector<float> head(const KvPart& part, uint32_t cell, uint32_t number) const {
        const uint32_t dim = shape.head_dim, row = cell % kStepCells;
        const std::byte* step = view.base + cell / kStepCells * view.step_bytes;
        const std::byte* codes =
            step + part.code_offset + row * part.code_row + number * kv_code_bytes(part.codes, dim);
        const std::byte* scales = step + part.scale_offset + row * part.scale_row +
                                  number * kv_scale_bytes(part.codes, dim);
        std::vector<float> values(dim);
        if (part.codes == KvCodes::f16)
            for (uint32_t j = 0; j < dim; ++j) values[j] = host::load_half(codes + 2 * j);
        else if (part.codes == KvCodes::f32)
            std::memcpy(values.data(), codes, dim * sizeof(float));
        else
            host::decode_rows(part.codes, {codes, scales, 0, 0, 1}, dim, values.data(), dim);
        return values;
    }
    // Heads [first cells, kv_heads, head_dim].
    std::vector<float> heads(const KvPart& part, uint32_t count) const {
        std::vector<float> all;
        for (uint32_t cell = 0; cell < count; ++cell)
            for (uint32_t h = 0; h < shape.kv_heads; ++h) {
                const std::vector<float> values = head(part, cell, h);
                all.insert(all.end(), values.begin(), values.end());
            }
        return all;
    }
};

// One layer's q, k, v of a conversation.
struct Tokens {
    AttentionShape shape;
    uint32_t count;
    std::vector<float> q, k, v, q_norm, k_norm;
    Tokens(const AttentionShape& attention, uint32_t n, Random& random)
        : shape(attention),
          count(n),
          q(random.values(size_t{n} * shape.heads * shape.head_dim)),
          k(random.values(size_t{n} * shape.kv_heads * shape.head_dim)),
          v(random.values(size_t{n} * shape.kv_heads * shape.head_dim)),
          q_norm(random.values(shape.head_dim)),
          k_norm(random.values(shape.head_dim)) {
        for (float& x : q_norm) x = 3 * x + 1;
    }
};

constexpr double kBase = 100000;

AttentionShape shape_of(uint32_t heads, uint32_t kv_heads, uint32_t dim) {
    AttentionShape shape;
    shape.heads = heads;
    shape.kv_heads = kv_heads;
    shape.head_dim = dim;
    shape.rope = rope_table(dim, kBase);
    shape.scale = 1 / std::sqrt(static_cast<float>(dim));
    return shape;
}

// Hands scratch for `cells` cells to the kernels; it must outlive their use.
std::vector<std::byte> hand_scratch(HostKernels& kernels, const AttentionShape& shape,
                                    uint32_t cells) {
    std::vector<std::byte> scratch(kernels.scratch_bytes(shape, cells) + 64);
    void* aligned = scratch.data();
    size_t space = scratch.size();
    std::align(64, space - 64, aligned, space);
    kernels.set_scratch(static_cast<std::byte*>(aligned), space);
    return scratch;
}

// Attention outputs [count, heads, head_dim] of all tokens, in chunks of `step`; the first
// `prompt` tokens by the prompt kernel, the others by the decode kernel.
std::vector<float> attend(const Tokens& tokens, Cells& cells, uint32_t prompt, uint32_t step,
                          unsigned threads, std::vector<float>* rotated = nullptr) {
    ThreadPool pool(threads);
    HostKernels kernels(pool);
    const AttentionShape& shape = tokens.shape;
    const auto scratch = hand_scratch(kernels, shape, tokens.count);
    std::vector<float> q = tokens.q, out(q.size());
    const size_t q_row = size_t{shape.heads} * shape.head_dim;
    const size_t kv_row = size_t{shape.kv_heads} * shape.head_dim;
    for (uint32_t i = 0; i < tokens.count;) {
        const bool reading = i < prompt;
        const uint32_t count =
            std::min({step, (reading ? prompt : tokens.count) - i, reading ? UINT32_MAX : 8u});
        float* here = q.data() + i * q_row;
        kernels.rope_store(shape, tokens.q_norm.data(), tokens.k_norm.data(), i, count, here,
                           tokens.k.data() + i * kv_row, tokens.v.data() + i * kv_row, cells.view);
        const Activations to{out.data() + i * q_row, nullptr, count, static_cast<uint32_t>(q_row)};
        if (reading)
            kernels.attention_prompt(shape, here, i, cells.view, to);
        else
            attend_decode(kernels, shape, here, i, cells.view, to);
        i += count;
    }
    if (rotated) *rotated = q;
    return out;
}

std::vector<double> normed_and_turned(const AttentionShape& shape, const float* x,
                                      const std::vector<float>& norm, uint32_t position) {
    double sum = 0;
    for (uint32_t j = 0; j < shape.head_dim; ++j) sum += static_cast<double>(x[j]) * x[j];
    const double factor = 1 / std::sqrt(sum / shape.head_dim + shape.norm_eps);
    std::vector<double> y(shape.head_dim);
    for (uint32_t j = 0; j < shape.head_dim; ++j) y[j] = x[j] * factor * norm[j];
    const uint32_t half = shape.rope->pairs();
    const double size = shape.rope->magnitude;
    for (uint32_t j = 0; j < half; ++j) {
        const double angle = position * 2 * std::numbers::pi * shape.rope->turns[j];
        const double a = y[j], b = y[j + half];
        y[j] = size * (a * std::cos(angle) - b * std::sin(angle));
        y[j + half] = size * (a * std::sin(angle) + b * std::cos(angle));
    }
    return y;
}

// In double precision over the stored cells k and v [cells, kv_heads, head_dim].
std::vector<double> exact_attention(const AttentionShape& shape, const std::vector<float>& k,
                                    const std::vector<float>& v, const std::vector<float>& q,
                                    uint32_t token, bool v_rotated) {
    const uint32_t dim = shape.head_dim;
    std::vector<double> out;
    for (uint32_t h = 0; h < shape.heads; ++h) {
        const uint32_t kv_head = h / (shape.heads / shape.kv_heads);
        const float* query = q.data() + (size_t{token} * shape.heads + h) * dim;
        const auto at = [&](uint32_t cell) {
            return (size_t{cell} * shape.kv_heads + kv_head) * dim;
        };
        std::vector<double> weight(token + 1), sums(dim);
        double largest = -1e300, sum = 0;
        for (uint32_t c = 0; c <= token; ++c) {
            for (uint32_t j = 0; j < dim; ++j)
                weight[c] += static_cast<double>(query[j]) * k[at(c) + j] * shape.scale;
            largest = std::max(largest, weight[c]);
        }
        for (double& w : weight) sum += w = std::exp(w - largest);
        for (uint32_t c = 0; c <= token; ++c)
            for (uint32_t j = 0; j < dim; ++j) sums[j] += weight[c] / sum * v[at(c) + j];
        if (v_rotated) sums = rotated(sums);  // its own inverse
        out.insert(out.end(), sums.begin(), sums.end());
    }
    return out;
}

struct Case {
    uint32_t heads, kv_heads, dim;
    KvFormat format;
};
class Attention : public testing::TestWithParam<Case> {};

// Of values that are spread evenly up to the largest, in relative L2: a step over sqrt(12), the
// step being the largest over 127 or 7 and the norm 0.58 times the largest; a rotated head has a
// largest value of about three times its norm. f16 2^-11 and f32 rounding.
double rounding(KvCodes codes) {
    switch (codes) {
        case KvCodes::f16:
            return 6e-4;
        case KvCodes::f32:
            return 2e-6;
        case KvCodes::int8:
            return 1e-2;
        case KvCodes::int4:
            return 0.16;
    }
    return 0;
}

// Rotation and storage against double precision.
TEST_P(Attention, StoresTurnedKeys) {
    const Case& c = GetParam();
    Random random(1);
    AttentionShape shape = shape_of(c.heads, c.kv_heads, c.dim);
    RopeTable table = *rope_table(c.dim >= 64 ? c.dim / 2 : c.dim, kBase);
    for (double& turns : table.turns) turns /= 2;
    table.magnitude = 1.25f;
    shape.rope = std::make_shared<RopeTable>(table);
    const Tokens tokens(shape, 3, random);
    for (const uint32_t first : {0u, 1022u, 1000000u}) {
        Cells cells(shape, c.format, 4096);
        KvView view = cells.view;
        const uint32_t base = first / kStepCells * kStepCells;
        view.base -= base / kStepCells * view.step_bytes;
        ThreadPool pool(1);
        HostKernels kernels(pool);
        const auto scratch = hand_scratch(kernels, shape, kDecodeCut);
        std::vector<float> q = tokens.q;
        kernels.rope_store(shape, tokens.q_norm.data(), tokens.k_norm.data(), first, 3, q.data(),
                           tokens.k.data(), tokens.v.data(), view);
        for (uint32_t i = 0; i < 3; ++i) {
            for (uint32_t h = 0; h < c.kv_heads; ++h) {
                const size_t at = (size_t{i} * c.kv_heads + h) * c.dim;
                const std::vector<float> k = cells.head(view.k, first - base + i, h);
                const std::vector<float> v = cells.head(view.v, first - base + i, h);
                const std::vector<double> turned =
                    normed_and_turned(shape, &tokens.k[at], tokens.k_norm, first + i);
                const std::vector<float> value(&tokens.v[at], &tokens.v[at] + c.dim);
                EXPECT_LT(distance(k, view.k.rotated() ? rotated(turned) : turned),
                          rounding(view.k.codes));
                if (view.v.rotated())
                    EXPECT_LT(distance(v, rotated(value)), rounding(view.v.codes));
                else
                    EXPECT_LT(distance(v, value), rounding(view.v.codes));
            }
            for (uint32_t h = 0; h < c.heads; ++h) {
                const size_t at = (size_t{i} * c.heads + h) * c.dim;
                const std::vector<double> turned =
                    normed_and_turned(shape, &tokens.q[at], tokens.q_norm, first + i);
                EXPECT_LT(distance(std::vector<float>(&q[at], &q[at] + c.dim),
                                   view.k.rotated() ? rotated(turned) : turned),
                          2e-6);
            }
        }
    }
}

// Both kernels against double precision over the stored cells, across tiles, splits and steps.
TEST_P(Attention, MatchesDoublePrecision) {
    const Case& c = GetParam();
    Random random(2);
    const Tokens tokens(shape_of(c.heads, c.kv_heads, c.dim), 1100, random);
    for (const uint32_t prompt : {1100u, 600u, 3u}) {
        Cells cells(tokens.shape, c.format, tokens.count);
        std::vector<float> q;
        const std::vector<float> out = attend(tokens, cells, prompt, 2048, 2, &q);
        const size_t row = size_t{c.heads} * c.dim;
        const std::vector<float> k = cells.heads(cells.view.k, tokens.count);
        const std::vector<float> v = cells.heads(cells.view.v, tokens.count);
        for (const uint32_t token : {0u, 1u, 63u, 64u, 65u, 511u, 512u, 1023u, 1024u, 1099u}) {
            const std::vector<float> got(&out[token * row], &out[token * row] + row);
            EXPECT_LT(distance(got, exact_attention(tokens.shape, k, v, q, token,
                                                    cells.view.v.rotated())),
                      3e-6)
                << token;
        }
    }
}

// The same bits whatever the chunks and threads, of the outputs and of the cells.
TEST_P(Attention, ChunksAndThreadsChangeNothing) {
    const Case& c = GetParam();
    Random random(3);
    const Tokens tokens(shape_of(c.heads, c.kv_heads, c.dim), 700, random);
    Cells first_cells(tokens.shape, c.format, tokens.count);
    const std::vector<float> first = attend(tokens, first_cells, 580, 580, 1);
    for (const unsigned threads : {1u, 2u, 3u}) {
        for (const uint32_t step : {1u, 5u, 100u}) {
            if (threads == 3 && step == 1) continue;
            Cells cells(tokens.shape, c.format, tokens.count);
            ASSERT_TRUE(same_bits(first, attend(tokens, cells, 580, step, threads)))
                << threads << " threads, chunks of " << step;
            ASSERT_EQ(cells.memory, first_cells.memory);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Attention,
    testing::Values(Case{8, 2, 64, KvFormat::f16}, Case{4, 4, 64, KvFormat::f32},
                    Case{6, 2, 24, KvFormat::f16}, Case{9, 1, 8, KvFormat::f32},
                    Case{4, 2, 128, KvFormat::f16}, Case{2, 1, 256, KvFormat::f16},
                    Case{8, 2, 64, KvFormat::int8}, Case{8, 2, 64, KvFormat::k8v4},
                    Case{8, 2, 64, KvFormat::q4}, Case{3, 1, 8, KvFormat::int8},
                    Case{3, 1, 8, KvFormat::q4}, Case{6, 2, 24, KvFormat::k8v4},
                    Case{4, 2, 40, KvFormat::q4}, Case{4, 2, 80, KvFormat::int8},
                    Case{4, 2, 80, KvFormat::q4}, Case{4, 1, 96, KvFormat::k8v4},
                    Case{4, 2, 128, KvFormat::k8v4}, Case{4, 2, 128, KvFormat::q4},
                    Case{2, 1, 192, KvFormat::q4}, Case{2, 1, 256, KvFormat::int8},
                    Case{2, 1, 256, KvFormat::k8v4}, Case{2, 1, 256, KvFormat::q4}));

// A prompt whose reading is stopped waits for no layer's attention.
TEST(AttentionPrompt, LeavesOutWhatNobodyWants) {
    Random random(4);
    const Tokens tokens(shape_of(2, 1, 16), 4000, random);
    Cells cells(tokens.shape, KvFormat::f16, tokens.count);
    (void)attend(tokens, cells, tokens.count, tokens.count, 2);
    ThreadPool pool(1);
    HostKernels kernels(pool);
    const auto scratch = hand_scratch(kernels, tokens.shape, tokens.count);
    const auto left_out = [&](int wanted_for) {
        std::vector<float> out(tokens.q.size(), NAN);
        int asked = 0;
        kernels.set_wanted([&] { return asked++ < wanted_for; });
        kernels.attention_prompt(tokens.shape, tokens.q.data(), 0, cells.view,
                                 {out.data(), nullptr, tokens.count, 32});
        return std::count_if(out.begin(), out.end(), [](float x) { return std::isnan(x); });
    };
    EXPECT_EQ(left_out(1 << 20), 0);
    EXPECT_GT(left_out(3), 3800 * 32);
}

// Every vector target that this machine has, the portable one too.
TEST(AttentionTargets, AllMatchDoublePrecision) {
    Random random(4);
    const Tokens tokens(shape_of(8, 2, 64), 150, random);
    int64_t targets = hwy::SupportedTargets();
    for (int64_t left = targets; left != 0; left &= left - 1) {
        const int64_t target = left & -left;
        hwy::SetSupportedTargetsForTest(target);
        for (const KvFormat format : {KvFormat::f16, KvFormat::int8, KvFormat::q4}) {
            for (const uint32_t prompt : {150u, 10u}) {
                Cells cells(tokens.shape, format, tokens.count);
                std::vector<float> q;
                const std::vector<float> out = attend(tokens, cells, prompt, 64, 2, &q);
                const std::vector<float> k = cells.heads(cells.view.k, tokens.count);
                const std::vector<float> v = cells.heads(cells.view.v, tokens.count);
                for (const uint32_t token : {0u, 9u, 149u}) {
                    const std::vector<float> got(&out[token * 512], &out[token * 512] + 512);
                    EXPECT_LT(distance(got, exact_attention(tokens.shape, k, v, q, token,
                                                            cells.view.v.rotated())),
                              3e-6)
                        << hwy::TargetName(target) << " " << kv_format_name(format);
                }
            }
        }
    }
    hwy::SetSupportedTargetsForTest(0);
}

}  // namespace
}  // namespace granary::gpu::test

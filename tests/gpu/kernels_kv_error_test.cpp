// SPDX-License-Identifier: GPL-3.0-or-later
// What K/V formats cost: the output of attention over kept cells against the same over f32 cells,
// in relative L2, K and V apart. Bounds are a quarter above what was measured.
//
// Queries give scores with a deviation of 2, so that a query looks at a few of its 1,024 cells.
// Where that is so, an error of a key turns into an error of a weight: K costs more than V, whose
// errors average out over the cells that are looked at. Gaussian values are the worst case of a
// format without outliers. Real keys have channels that stand off zero for all tokens (Liu et al.
// 2024, "KIVI"), and a few values are much larger than the others.
#include <gtest/gtest.h>

#include <numbers>

#include "gpu/host/host_kernels.h"
#include "gpu/host/kv_codes.h"
#include "tests/gpu/kernels_support.h"

namespace granary::gpu::test {
namespace {

constexpr uint32_t kCells = 1024, kQueries = 32, kHeads = 4;

float gaussian(Random& random) {
    return std::sqrt(-2 * std::log(random.uniform() + 0x1p-25f)) *
           std::cos(2 * std::numbers::pi_v<float> * random.uniform());
}

struct Inputs {
    AttentionShape shape;
    std::vector<float> q, k, v;  // [kCells, heads or 1, head_dim]
    Inputs(uint32_t dim, bool outliers) {
        Random random(dim);
        shape.heads = kHeads;
        shape.kv_heads = 1;
        shape.head_dim = dim;
        shape.rope = rope_table(2, 10000);
        shape.scale = 1 / std::sqrt(static_cast<float>(dim));
        for (size_t i = 0; i < size_t{kCells} * kHeads * dim; ++i)
            q.push_back(2 * gaussian(random));
        for (size_t i = 0; i < size_t{kCells} * dim; ++i) {
            k.push_back(gaussian(random));
            v.push_back(gaussian(random));
            if (!outliers) continue;
            const size_t channel = i % dim;
            if (channel == 11) k.back() += 12;
            if (channel == dim - 5) k.back() -= 12;
            if (channel == 17) v.back() *= 12;
        }
    }
    // [kQueries, heads, head_dim] of the last tokens.
    std::vector<float> attend(KvCodes k_codes, KvCodes v_codes) const {
        host::ThreadPool pool(2);
        host::HostKernels kernels(pool);
        std::vector<float> scratch(kernels.scratch_bytes(shape, kCells) / 4 + 16);
        void* aligned = scratch.data();
        size_t space = scratch.size() * 4;
        std::align(64, space - 64, aligned, space);
        kernels.set_scratch(static_cast<std::byte*>(aligned), space);
        const KvParts parts = kv_parts(k_codes, v_codes, 1, shape.head_dim);
        std::vector<std::byte> cells(parts.bytes);
        const KvView kv{cells.data(), parts.bytes, parts.k, parts.v, nullptr, 0};
        std::vector<float> turned = q;
        kernels.rope_store(shape, nullptr, nullptr, 0, kCells, turned.data(), k.data(), v.data(),
                           kv);
        const uint32_t width = kHeads * shape.head_dim, first = kCells - kQueries;
        std::vector<float> out(size_t{kQueries} * width);
        kernels.attention_prompt(shape, turned.data() + size_t{first} * width, first, kv,
                                 {out.data(), nullptr, kQueries, width});
        return out;
    }
};

struct Bound {
    uint32_t dim;
    bool outliers;
    KvCodes codes;
    double k, v;
};
const Bound kBounds[] = {
    // 2^-11 of each value.
    {64, false, KvCodes::f16, 5e-4, 2.5e-4},
    {64, true, KvCodes::f16, 7.5e-4, 2.5e-4},
    {128, false, KvCodes::f16, 5.3e-4, 2.6e-4},
    {128, true, KvCodes::f16, 8.2e-4, 3e-4},
    {256, false, KvCodes::f16, 4.7e-4, 2.6e-4},
    {256, true, KvCodes::f16, 6.3e-4, 2.9e-4},
    // The largest of 64 gaussian values is 2.4 deviations: a step of 1 / 53 and errors of 1 / 183.
    // A
    // key that stands off zero makes the steps of its group five times as large.
    {64, false, KvCodes::int8, 1.4e-2, 7.4e-3},
    {64, true, KvCodes::int8, 5.9e-2, 1.9e-2},
    {128, false, KvCodes::int8, 1.5e-2, 7.4e-3},
    {128, true, KvCodes::int8, 5.9e-2, 1.8e-2},
    {256, false, KvCodes::int8, 1.2e-2, 7.4e-3},
    {256, true, KvCodes::int8, 3.9e-2, 1.5e-2},
    // The largest of 32 is 2.1 deviations: errors of 1 / 12. Rotated, an outlier of 12 adds 12 over
    // the root of the head to each of its values: less, the larger the head.
    {64, false, KvCodes::int4, 0.23, 0.12},
    {64, true, KvCodes::int4, 0.45, 0.10},
    {128, false, KvCodes::int4, 0.22, 0.13},
    {128, true, KvCodes::int4, 0.38, 0.11},
    {256, false, KvCodes::int4, 0.20, 0.13},
    {256, true, KvCodes::int4, 0.29, 0.12},
};

TEST(KvError, StaysWithinItsBounds) {
    for (const Bound& bound : kBounds) {
        const Inputs inputs(bound.dim, bound.outliers);
        const std::vector<float> exact = inputs.attend(KvCodes::f32, KvCodes::f32);
        const double k = distance(inputs.attend(bound.codes, KvCodes::f32), exact);
        const double v = distance(inputs.attend(KvCodes::f32, bound.codes), exact);
        SCOPED_TRACE(std::to_string(bound.dim) +
                     (bound.outliers ? " with outliers, codes " : ", codes ") +
                     std::to_string(static_cast<int>(bound.codes)));
        EXPECT_LT(k, bound.k);
        EXPECT_LT(v, bound.v);
        // A bound that has become loose is no bound.
        EXPECT_GT(k, 0.6 * bound.k);
        EXPECT_GT(v, 0.6 * bound.v);
    }
}

// What the rotation is for: without it, an outlier takes its neighbours' 4 bits.
TEST(KvError, RotationKeepsOutliersFromTheirNeighbours) {
    for (const uint32_t dim : {64u, 128u, 256u}) {
        Inputs inputs(dim, true);
        const std::vector<float> exact = inputs.attend(KvCodes::f32, KvCodes::f32);
        const double k = distance(inputs.attend(KvCodes::int4, KvCodes::f32), exact);
        const double v = distance(inputs.attend(KvCodes::f32, KvCodes::int4), exact);
        const auto plain = [&](std::vector<float> values) {
            std::vector<std::byte> codes(dim / 2), scales(dim / 16);
            for (size_t i = 0; i < values.size(); i += dim) {
                host::encode_head(KvCodes::int4, &values[i], dim, codes.data(), scales.data());
                host::decode_rows(KvCodes::int4, {codes.data(), scales.data(), 0, 0, 1}, dim,
                                  &values[i], dim);
            }
            return values;
        };
        Inputs plain_k = inputs, plain_v = inputs;
        plain_k.k = plain(inputs.k);
        plain_v.v = plain(inputs.v);
        const double pk = distance(plain_k.attend(KvCodes::f32, KvCodes::f32), exact);
        const double pv = distance(plain_v.attend(KvCodes::f32, KvCodes::f32), exact);
        EXPECT_GT(pk, 1.5 * k) << dim;  // measured: 2.4, 2.2, 1.7
        EXPECT_GT(pv, 1.5 * v) << dim;  // measured: 2.4, 1.8, 1.7
    }
}

}  // namespace
}  // namespace granary::gpu::test

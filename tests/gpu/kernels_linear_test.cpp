// SPDX-License-Identifier: GPL-3.0-or-later
#include <gtest/gtest.h>

#include "gpu/host/codes.h"
#include "gpu/host/host_kernels.h"
#include "gpu/host/tile.h"
#include "tests/gpu/kernels_support.h"

namespace granary::gpu::test {
namespace {

using host::HostKernels;
using host::ThreadPool;

std::vector<double> exact_product(const RandomWeight& w, const std::vector<float>& x,
                                  uint32_t rows) {
    std::vector<double> out(size_t{rows} * w.weight.rows);
    for (uint32_t i = 0; i < rows; ++i)
        for (uint32_t r = 0; r < w.weight.rows; ++r)
            for (uint32_t k = 0; k < w.weight.cols; ++k)
                out[size_t{i} * w.weight.rows + r] +=
                    static_cast<double>(w.decoded[size_t{r} * w.weight.cols + k]) *
                    static_cast<double>(x[size_t{i} * w.weight.cols + k]);
    return out;
}

TEST(Quantise, CodesAndSums) {
    ThreadPool pool(2);
    HostKernels kernels(pool);
    Random random(1);
    for (const uint32_t cols : {32u, 80u, 512u}) {
        Rows in(kernels, 3, cols, Arithmetic::fast);
        in.values = random.values(size_t{3} * cols);
        in.view.values = in.values.data();
        kernels.quantise(in.view);
        for (uint32_t row = 0; row < 3; ++row) {
            const auto* codes = reinterpret_cast<const host::CodeGroup*>(
                in.view.codes + row * kernels.code_bytes(cols));
            for (uint32_t g = 0; g < host::groups_of(cols); ++g) {
                float limit = 0;
                int sums[2] = {};
                for (uint32_t i = 0; i < 32; ++i) {
                    const uint32_t k = g * 32 + i;
                    const float x = k < cols ? in.values[row * cols + k] : 0;
                    limit = std::max(limit, std::abs(x));
                    sums[i / 16] += codes[g].code[i];
                    EXPECT_NEAR(codes[g].scale * static_cast<float>(codes[g].code[i]), x,
                                codes[g].scale * 0.501f);
                }
                EXPECT_FLOAT_EQ(codes[g].scale, limit / 127);
                EXPECT_EQ(codes[g].negative[0], -sums[0]);
                EXPECT_EQ(codes[g].negative[1], -sums[1]);
                EXPECT_FLOAT_EQ(codes[g].sum,
                                codes[g].scale * static_cast<float>(sums[0] + sums[1]));
            }
        }
    }
}

// Zeros and values that are not numbers must neither crash nor spread to other groups.
TEST(Quantise, OddValues) {
    ThreadPool pool(1);
    HostKernels kernels(pool);
    Rows in(kernels, 1, 96, Arithmetic::fast);
    for (uint32_t i = 0; i < 32; ++i) in.values[32 + i] = i % 2 ? NAN : INFINITY;
    in.values[64] = 1;
    kernels.quantise(in.view);
    const auto* codes = reinterpret_cast<const host::CodeGroup*>(in.view.codes);
    EXPECT_EQ(codes[0].scale, 0);
    EXPECT_EQ(codes[0].code[0], 0);
    EXPECT_EQ(codes[2].code[0], 127);
}

class MatmulOfType : public testing::TestWithParam<WeightType> {};

// f32 arithmetic: only rounding of the sums, at most about cols * 2^-24 relative.
TEST_P(MatmulOfType, F32IsExact) {
    ThreadPool pool(2);
    HostKernels kernels(pool);
    Random random(2);
    const RandomWeight w(GetParam(), 37, 2304, random);  // more than a panel, ragged tiles
    Rows in(kernels, 5, 2304, Arithmetic::f32);
    in.values = random.values(in.values.size());
    in.view.values = in.values.data();
    std::vector<float> out(size_t{5} * 37);
    const Matmul job{w.weight, out.data(), false};
    kernels.matmul({&job, 1}, in.view);
    EXPECT_LT(distance(out, exact_product(w, in.values, 5)), 2e-6);
}

// Fast arithmetic on activations that 8 bits hold exactly: again only rounding. Codes that are
// not exact lose half a step of 1/127 of the group's largest value, 0.4 % of uniform values.
TEST_P(MatmulOfType, FastIsCloseOnEveryTarget) {
    ThreadPool pool(2);
    Random random(3);
    const RandomWeight w(GetParam(), 37, 2304, random);
    for (const host::TileKernels* tiles : host::tile_kernels()) {
        HostKernels kernels(pool, tiles);
        for (const bool whole : {true, false}) {
            Rows in(kernels, 11, 2304, Arithmetic::fast);
            in.values = random.values(in.values.size());
            in.view.values = in.values.data();
            for (size_t i = 0; i < in.values.size(); ++i) {
                if (!whole) continue;
                in.values[i] = i % 32 ? std::round(in.values[i] * 127) : 127.0f;
            }
            kernels.quantise(in.view);
            std::vector<float> out(size_t{11} * 37);
            const Matmul job{w.weight, out.data(), false};
            kernels.matmul({&job, 1}, in.view);
            EXPECT_LT(distance(out, exact_product(w, in.values, 11)), whole ? 2e-6 : 4e-5)
                << tiles->name << (whole ? " whole" : "");
        }
    }
}

// A row's result has the same bits alone, among others, with other thread counts, and cut in jobs.
TEST_P(MatmulOfType, RowsDoNotDependOnOthers) {
    Random random(4);
    constexpr uint32_t kRows = 270, kCols = 256, kOut = 50;
    const RandomWeight w(GetParam(), kOut, kCols, random);
    const std::vector<float> x = random.values(size_t{kRows} * kCols);
    for (const Arithmetic arithmetic : {Arithmetic::fast, Arithmetic::f32}) {
        for (const host::TileKernels* tiles : host::tile_kernels()) {
            std::vector<float> first;
            for (const unsigned threads : {1u, 2u, 3u}) {
                ThreadPool pool(threads);
                HostKernels kernels(pool, tiles);
                for (const uint32_t step : {kRows, 1u, 7u}) {
                    if (threads == 3 && step == 1) continue;
                    std::vector<float> out(size_t{kRows} * kOut);
                    for (uint32_t i = 0; i < kRows; i += step) {
                        const uint32_t count = std::min(step, kRows - i);
                        Rows in(kernels, count, kCols, arithmetic);
                        std::copy_n(x.data() + size_t{i} * kCols, in.values.size(),
                                    in.values.data());
                        kernels.quantise(in.view);
                        const Matmul job{w.weight, out.data() + size_t{i} * kOut, false};
                        kernels.matmul({&job, 1}, in.view);
                    }
                    if (first.empty()) first = out;
                    ASSERT_TRUE(same_bits(first, out)) << threads << " threads, steps of " << step;
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, MatmulOfType, testing::ValuesIn(kTypes), [](const auto& info) {
    return std::string(weight_type_info(info.param).name);
});

TEST(Matmul, AddsAndSharesInput) {
    ThreadPool pool(2);
    HostKernels kernels(pool);
    Random random(5);
    const RandomWeight a(WeightType::q4_k, 128, 512, random), b(WeightType::q6_k, 16, 512, random),
        c(WeightType::f32, 5, 512, random);
    Rows in(kernels, 3, 512, Arithmetic::fast);
    in.values = random.values(in.values.size());
    in.view.values = in.values.data();
    kernels.quantise(in.view);
    std::vector<float> fresh[3], added[3];
    const RandomWeight* weights[] = {&a, &b, &c};
    std::vector<Matmul> jobs;
    for (int i = 0; i < 3; ++i) {
        fresh[i].resize(size_t{3} * weights[i]->weight.rows);
        jobs.push_back({weights[i]->weight, fresh[i].data(), false});
    }
    kernels.matmul(jobs, in.view);
    for (int i = 0; i < 3; ++i) {
        added[i].assign(fresh[i].size(), 100);
        const Matmul job{weights[i]->weight, added[i].data(), true};
        kernels.matmul({&job, 1}, in.view);
        for (size_t j = 0; j < fresh[i].size(); ++j)
            EXPECT_NEAR(added[i][j], fresh[i][j] + 100, 1e-4);
        EXPECT_LT(distance(fresh[i], exact_product(*weights[i], in.values, 3)), 4e-5);
    }
}

// Scales of a hostile file: infinities and NaN stay numbers' business.
TEST(Matmul, OddScalesDoNotCrash) {
    ThreadPool pool(2);
    HostKernels kernels(pool);
    for (const WeightType type : kTypes) {
        std::vector<std::byte> data(row_bytes(type, 512) * 16, std::byte{0xff});
        const Weight weight{data.data(), type, 16, 512};
        Rows in(kernels, 2, 512, Arithmetic::fast);
        in.values.assign(in.values.size(), 1);
        kernels.quantise(in.view);
        std::vector<float> out(32);
        const Matmul job{weight, out.data(), false};
        kernels.matmul({&job, 1}, in.view);
        in.view.codes = nullptr;
        kernels.matmul({&job, 1}, in.view);
    }
}

}  // namespace
}  // namespace granary::gpu::test

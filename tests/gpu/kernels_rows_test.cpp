// SPDX-License-Identifier: GPL-3.0-or-later
#include <gtest/gtest.h>

#include "gpu/host/host_kernels.h"
#include "gpu/host/rows.h"
#include "tests/gpu/kernels_support.h"

namespace granary::gpu::test {
namespace {

using host::HostKernels;
using host::ThreadPool;

TEST(RmsNorm, MatchesDoublePrecision) {
    ThreadPool pool(2);
    HostKernels kernels(pool);
    Random random(1);
    for (const uint32_t cols : {5u, 64u, 80u, 512u}) {
        const std::vector<float> x = random.values(size_t{30} * cols), w = random.values(cols);
        Rows out(kernels, 30, cols, Arithmetic::fast);
        kernels.rms_norm(x.data(), w.data(), 1e-5f, out.view);
        std::vector<double> exact(x.size());
        for (size_t row = 0; row < 30; ++row) {
            double sum = 0;
            for (size_t i = 0; i < cols; ++i)
                sum += static_cast<double>(x[row * cols + i]) * x[row * cols + i];
            for (size_t i = 0; i < cols; ++i)
                exact[row * cols + i] = x[row * cols + i] / std::sqrt(sum / cols + 1e-5) * w[i];
        }
        EXPECT_LT(distance(out.values, exact), 3e-7);
        // The codes are those of quantise().
        Rows again(kernels, 30, cols, Arithmetic::fast);
        std::copy(out.values.begin(), out.values.end(), again.values.begin());
        kernels.quantise(again.view);
        EXPECT_EQ(std::memcmp(out.view.codes, again.view.codes, 30 * kernels.code_bytes(cols)), 0);
    }
}

TEST(Embed, DecodesRows) {
    ThreadPool pool(2);
    HostKernels kernels(pool);
    Random random(2);
    for (const WeightType type : {WeightType::q6_k, WeightType::f32, WeightType::q8_0}) {
        const RandomWeight table(type, 50, 256, random);
        std::vector<int32_t> tokens;
        for (int32_t i = 0; i < 60; ++i) tokens.push_back(i * 7 % 50);
        std::vector<float> x(size_t{60} * 256);
        kernels.embed(table.weight, tokens.data(), 60, x.data());
        for (size_t i = 0; i < 60; ++i)
            EXPECT_EQ(std::memcmp(&x[i * 256], &table.decoded[size_t{256} * tokens[i]], 1024), 0);
    }
}

TEST(Argmax, LowestAmongEqualsAndNaN) {
    ThreadPool pool(2);
    HostKernels kernels(pool);
    for (const uint32_t vocab : {1u, 7u, 16u, 100u, 8195u}) {
        Random random(3);
        std::vector<float> logits = random.values(size_t{3} * vocab);
        std::vector<int32_t> best(3), exact(3);
        logits[vocab / 2] = 5;
        logits[vocab - 1] = 5;  // the same, later
        logits[vocab] = NAN;
        for (uint32_t row = 0; row < 3; ++row) {
            float largest = -INFINITY;
            for (uint32_t i = 0; i < vocab; ++i)
                if (logits[size_t{row} * vocab + i] > largest) {
                    largest = logits[size_t{row} * vocab + i];
                    exact[row] = static_cast<int32_t>(i);
                }
        }
        kernels.argmax(logits.data(), 3, vocab, best.data());
        EXPECT_EQ(best, exact);
    }
}

// All 65,536 halves there and back, and every rounding boundary between neighbours.
TEST(Half, RoundsToNearestEven) {
    std::vector<uint16_t> halves(65536);
    for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
    std::vector<float> wide(65536);
    host::from_half(halves.data(), halves.size(), wide.data());
    for (uint32_t i = 0; i < 65536; ++i) {
        const int exponent = static_cast<int>(i >> 10 & 31);
        const double fraction = i & 1023;
        const double magnitude =
            exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
        if (exponent == 31) {
            EXPECT_EQ(std::isinf(wide[i]), fraction == 0);
            EXPECT_EQ(std::isnan(host::half_to_float(halves[i])), fraction != 0);
            continue;
        }
        EXPECT_EQ(wide[i], static_cast<float>(i & 0x8000 ? -magnitude : magnitude));
        EXPECT_EQ(host::half_to_float(halves[i]), wide[i]);
    }
    std::vector<float> between;
    std::vector<uint16_t> expected;
    for (uint16_t i = 0; i < 0x7bff; ++i) {
        const float low = wide[i], high = wide[i + 1], middle = (low + high) / 2;
        const uint16_t even = i % 2 ? static_cast<uint16_t>(i + 1) : i;
        for (const float x :
             {low, std::nextafter(middle, low), middle, std::nextafter(middle, high)})
            between.push_back(x);
        expected.insert(expected.end(), {i, i, even, static_cast<uint16_t>(i + 1)});
    }
    std::vector<uint16_t> narrow(between.size());
    host::to_half(between.data(), between.size(), narrow.data());
    EXPECT_EQ(narrow, expected);
    for (size_t i = 0; i < between.size(); ++i)
        ASSERT_EQ(host::float_to_half(between[i]), expected[i]);
    EXPECT_EQ(host::float_to_half(65520.0f), 0x7c00);
    EXPECT_EQ(host::float_to_half(65519.0f), 0x7bff);
    EXPECT_EQ(host::float_to_half(-1e9f), 0xfc00);
}

TEST(Silu, MatchesDoublePrecision) {
    std::vector<float> gate(96), up(96, 1.0f), out(96);
    std::vector<double> exact(96);
    for (size_t i = 0; i < 96; ++i) {
        gate[i] = (static_cast<float>(i) - 48) * 0.5f;
        exact[i] = gate[i] / (1 + std::exp(-static_cast<double>(gate[i])));
    }
    host::silu_multiply(gate.data(), up.data(), 3, 32, out.data(), 32);
    for (size_t i = 0; i < 96; ++i) EXPECT_NEAR(out[i], exact[i], 1e-6 + 4e-7 * std::abs(exact[i]));
    gate[0] = -1000;
    gate[1] = 1000;
    host::silu_multiply(gate.data(), up.data(), 1, 32, out.data(), 32);
    EXPECT_NEAR(out[0], 0, 1e-30);
    EXPECT_EQ(out[1], 1000);
}

}  // namespace
}  // namespace granary::gpu::test

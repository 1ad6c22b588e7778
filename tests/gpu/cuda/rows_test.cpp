// SPDX-License-Identifier: GPL-3.0-or-later
// Operations on rows of values against the host's.
#include <cmath>

#include "tests/gpu/cuda/support.h"

namespace granary::gpu::cuda::test {
namespace {

// Sums of a few thousand products in another order, and a square root: a few units of 2^-24.
constexpr double kF32 = 1e-6;
// Rounding to f16: at most 2^-11 a value, a third of that on average.
constexpr double kF16 = 3e-4;

TEST_F(CudaTest, EmbedIsExactForEveryTypeAlsoInHostMemory) {
    Random random(2);
    const std::vector<int32_t> tokens{3, 0, 6, 3, 1};
    for (const WeightType type : kTypes) {
        const RandomWeight table(type, 7, 768, random);
        const Array<std::byte> on_card(gpu(), table.data);
        const HostBuffer in_host = locked(gpu(), table.data);
        const Array<int32_t> picks(gpu(), tokens);
        for (const std::byte* data : {on_card.data(), in_host.data.get()}) {
            Weight weight = table.weight;
            weight.data = data;
            const Array<float> x(gpu(), tokens.size() * 768);
            kernels().embed(weight, picks, 5, x);
            std::vector<float> expected;
            for (const int32_t token : tokens)
                expected.insert(expected.end(), table.decoded.begin() + token * 768,
                                table.decoded.begin() + (token + 1) * 768);
            EXPECT_TRUE(same_bits(x.get(), expected)) << weight_type_info(type).name;
        }
    }
}

TEST_F(CudaTest, RmsNorm) {
    Random random(3);
    for (const uint32_t cols : {2048u, 768u, 41u, 8u, 5120u, 1u}) {
        for (const uint32_t rows : {1u, 3u, 70u}) {
            for (const bool weighted : {true, false}) {
                const std::vector<float> x = random.values(size_t{rows} * cols);
                const std::vector<float> weight = random.values(cols);
                std::vector<float> expected(x.size());
                host().rms_norm(x.data(), weighted ? weight.data() : nullptr, 1e-6f,
                                {expected.data(), nullptr, rows, cols});
                const Array<float> in(gpu(), x), w(gpu(), weight), out(gpu(), x.size());
                const Array<std::byte> codes(gpu(), rows * kernels().code_bytes(cols));
                kernels().rms_norm(in, weighted ? w.data() : nullptr, 1e-6f,
                                   {out, codes, rows, cols});
                const std::vector<float> values = out.get();
                EXPECT_LT(distance(values, expected), kF32) << cols;
                // The codes are what comes of the values, and zeros fill them up.
                EXPECT_EQ(codes.get(), to_ordered(values, rows, cols)) << cols;
                const Array<float> plain(gpu(), x.size());
                kernels().rms_norm(in, weighted ? w.data() : nullptr, 1e-6f,
                                   {plain, nullptr, rows, cols});
                EXPECT_TRUE(same_bits(plain.get(), values));
            }
        }
    }
}

TEST_F(CudaTest, RmsNormOfARowDoesNotDependOnTheOthers) {
    Random random(4);
    const std::vector<float> x = random.values(9 * 2048), weight = random.values(2048);
    const Array<float> in(gpu(), x), w(gpu(), weight), all(gpu(), x.size()), one(gpu(), 2048);
    kernels().rms_norm(in, w, 1e-6f, {all, nullptr, 9, 2048});
    kernels().rms_norm(in + 7 * 2048, w, 1e-6f, {one, nullptr, 1, 2048});
    const std::vector<float> values = all.get();
    EXPECT_TRUE(same_bits(one.get(), {values.begin() + 7 * 2048, values.begin() + 8 * 2048}));
}

TEST_F(CudaTest, QuantiseRoundsToF16InOrder) {
    Random random(5);
    for (const uint32_t cols : {2048u, 96u, 41u, 8u, 1u}) {
        std::vector<float> x = random.values(3 * size_t{cols});
        x[0] = 70000;  // becomes infinity, as f16 has it
        const Array<float> in(gpu(), x);
        const Array<std::byte> codes(gpu(), 3 * kernels().code_bytes(cols));
        kernels().quantise({in, codes, 3, cols});
        EXPECT_EQ(codes.get(), to_ordered(x, 3, cols)) << cols;
        kernels().quantise({in, nullptr, 3, cols});  // f32 arithmetic: nothing to do
    }
}

TEST_F(CudaTest, QuantiseOfADecodeStep) {
    Random random(15);
    for (const uint32_t cols : {2048u, 96u, 41u, 8u, 1u}) {
        std::vector<float> x = random.values(3 * size_t{cols});
        x[0] = 70000;
        for (uint32_t i = 0; i < cols; ++i) x[cols + i] = 0;
        const Array<float> in(gpu(), x);
        const Array<std::byte> codes(gpu(), 3 * kernels().code_bytes(cols));
        kernels().quantise({in, codes, 3, cols, true});
        expect_decode_codes(codes.get(), x, 3, cols);
    }
}

TEST_F(CudaTest, CombineSumsF16OutputsInRankOrder) {
    Random random(6);
    for (const uint32_t hidden : {2048u, 36u, 7u, 328u, 1000u, 2880u, 8192u, 8200u}) {
        for (const uint32_t used : {1u, 8u, 10u}) {
            constexpr uint32_t kRows = 5;
            const size_t routes = kRows * used;
            std::vector<float> out = random.values(routes * hidden);
            std::vector<uint16_t> halves(out.size());
            for (size_t i = 0; i < out.size(); ++i) {
                halves[i] = host::float_to_half(out[i]);
                out[i] = host::half_to_float(halves[i]);
            }
            std::vector<float> weights = random.values(routes);
            const std::vector<float> x = random.values(size_t{kRows} * hidden);
            std::vector<double> expected(x.begin(), x.end());
            for (size_t r = 0; r < routes; ++r)
                for (uint32_t c = 0; c < hidden; ++c)
                    expected[r / used * hidden + c] +=
                        static_cast<double>(weights[r]) * static_cast<double>(out[r * hidden + c]);
            const Array<uint16_t> outputs(gpu(), halves);
            const Array<float> w(gpu(), weights), sum(gpu(), x);
            Routes routed;
            routed.weight = w;
            routed.rows = kRows;
            kernels().combine(routed, used, hidden, outputs.data(), sum);
            EXPECT_LT(distance(sum.get(), expected), kF32) << hidden << " " << used;

            // The same of a decode step, with the norm that follows.
            const std::vector<float> weight = random.values(hidden);
            const Array<float> again(gpu(), x), other(gpu(), x.size()), norm_weight(gpu(), weight),
                norm(gpu(), x.size()), alone(gpu(), x.size());
            const Array<std::byte> codes(gpu(), kRows * kernels().code_bytes(hidden));
            const Array<float> read(gpu(), x), read_norm(gpu(), x.size());
            EXPECT_EQ(kernels().combine_and_norm(routed, used, hidden, outputs.data(), read, other,
                                                 norm_weight, 1e-5f,
                                                 {read_norm, codes, kRows, hidden}, {}),
                      read.data());
            EXPECT_TRUE(same_bits(read.get(), sum.get())) << hidden << " " << used;
            EXPECT_EQ(codes.get(), to_ordered(read_norm.get(), kRows, hidden));
            routed.decode = true;
            EXPECT_EQ(kernels().combine_and_norm(routed, used, hidden, outputs.data(), again, other,
                                                 norm_weight, 1e-5f,
                                                 {norm, codes, kRows, hidden, true}, {}),
                      other.data());
            EXPECT_TRUE(same_bits(other.get(), sum.get())) << hidden << " " << used;
            kernels().rms_norm(sum, norm_weight, 1e-5f, {alone, nullptr, kRows, hidden});
            EXPECT_LT(distance(norm.get(), alone.get()), kF32) << hidden << " " << used;
            kernels().rms_norm(sum, norm_weight, 1e-5f, {alone, nullptr, kRows, hidden, true});
            EXPECT_TRUE(same_bits(norm.get(), alone.get())) << hidden << " " << used;
            expect_decode_codes(codes.get(), norm.get(), kRows, hidden);
            const Array<float> third(gpu(), x);
            kernels().combine(routed, used, hidden, outputs.data(), third);
            EXPECT_TRUE(same_bits(third.get(), sum.get())) << hidden << " " << used;
        }
    }
}

TEST_F(CudaTest, ArgmaxIsTheHosts) {
    Random random(7);
    for (const uint32_t vocab : {151936u, 1000u, 33u, 1u}) {
        for (const uint32_t rows : {1u, 8u, 11u}) {
            std::vector<float> logits = random.values(size_t{rows} * vocab);
            // Equals: the lowest wins. NaN never does.
            for (uint32_t r = 0; r < rows; ++r) {
                float* const row = logits.data() + size_t{r} * vocab;
                for (const uint32_t at : {vocab / 2, vocab / 3, vocab - 1}) row[at] = 2;
                if (r % 3 == 1) row[vocab / 5] = std::nanf("");
                if (r % 4 == 2) std::fill_n(row, vocab, -HUGE_VALF);
                if (r % 4 == 3) std::fill_n(row, vocab, std::nanf(""));
                if (r == 4) std::fill_n(row, vocab, -0.0f), row[vocab - 1] = 0.0f;
            }
            std::vector<int32_t> expected(rows);
            host().argmax(logits.data(), rows, vocab, expected.data());
            const Array<float> in(gpu(), logits);
            const Array<int32_t> best(gpu(), rows);
            kernels().argmax(in, rows, vocab, best);
            EXPECT_EQ(best.get(), expected) << vocab << " " << rows;
        }
    }
}

TEST_F(CudaTest, GatesAreTheHosts) {
    Random random(8);
    for (const auto& [heads, dim] : {std::pair{16u, 256u}, {3u, 8u}, {5u, 24u}}) {
        for (const uint32_t rows : {1u, 37u}) {
            const AttentionShape shape{
                .heads = heads, .kv_heads = 1, .head_dim = dim, .rope = nullptr};
            const uint32_t cols = heads * dim;
            const std::vector<float> pairs = random.values(size_t{rows} * 2 * cols);
            std::vector<float> values = random.values(size_t{rows} * cols);
            const Array<float> on_card(gpu(), pairs), out(gpu(), values);
            const Array<std::byte> codes(gpu(), rows * kernels().code_bytes(cols));
            const Array<float> again(gpu(), values);
            kernels().gate_heads(shape, on_card, {out, codes, rows, cols});
            host().gate_heads(shape, pairs.data(), {values.data(), nullptr, rows, cols});
            EXPECT_LT(distance(out.get(), values), kF32);
            EXPECT_EQ(codes.get(), to_ordered(out.get(), rows, cols));
            if (rows > 8) continue;
            kernels().gate_heads(shape, on_card, {again, codes, rows, cols, true});
            EXPECT_TRUE(same_bits(again.get(), out.get()));
            expect_decode_codes(codes.get(), out.get(), rows, cols);
        }
    }
}

TEST_F(CudaTest, GatedNorm) {
    Random random(9);
    for (const auto& [heads, dim] : {std::pair{32u, 128u}, {3u, 16u}, {5u, 48u}, {2u, 512u}}) {
        constexpr uint32_t kRows = 19;
        const uint32_t cols = heads * dim;
        const std::vector<float> x = random.values(size_t{kRows} * cols);
        const std::vector<float> gate = random.values(x.size()), weight = random.values(dim);
        std::vector<float> expected(x.size());
        host().gated_norm(x.data(), weight.data(), 1e-6f, dim, gate.data(),
                          {expected.data(), nullptr, kRows, cols});
        const Array<float> in(gpu(), x), g(gpu(), gate), w(gpu(), weight), out(gpu(), x.size());
        const Array<std::byte> codes(gpu(), kRows * kernels().code_bytes(cols));
        // Of a prompt codes alone are written.
        kernels().gated_norm(in, w, 1e-6f, dim, g, {out, nullptr, kRows, cols});
        EXPECT_LT(distance(out.get(), expected), kF32);
        kernels().gated_norm(in, w, 1e-6f, dim, g, {nullptr, codes, kRows, cols});
        EXPECT_EQ(codes.get(), to_ordered(out.get(), kRows, cols));
        EXPECT_LT(distance(from_ordered(codes.get(), kRows, cols), expected), kF16);
        const Array<std::byte> few(gpu(), 3 * kernels().code_bytes(cols));
        const Array<float> again(gpu(), 3 * size_t{cols});
        kernels().gated_norm(in, w, 1e-6f, dim, g, {again, few, 3, cols, true});
        const std::vector<float> values = out.get();
        EXPECT_TRUE(same_bits(again.get(), {values.begin(), values.begin() + 3 * cols}));
        expect_decode_codes(few.get(), again.get(), 3, cols);
    }
}

TEST_F(CudaTest, ConvolutionAndItsTail) {
    Random random(10);
    for (const uint32_t taps : {4u, 2u, 8u}) {
        const DeltaShape shape{.key_heads = 2, .value_heads = 3, .head_dim = 32, .taps = taps};
        const uint32_t channels = shape.channels();
        const std::vector<float> kernel = random.values(size_t{channels} * taps);
        std::vector<float> tail = random.values(shape.tail_values());
        const Array<float> k(gpu(), kernel), state(gpu(), tail);
        for (const uint32_t n : {1u, 2u, 33u, 1u, 100u, 3u}) {
            const std::vector<float> x = random.values(size_t{n} * channels);
            std::vector<float> expected(x.size());
            host().causal_conv(shape, kernel.data(), x.data(), n, tail.data(), expected.data());
            const Array<float> in(gpu(), x), out(gpu(), x.size());
            kernels().causal_conv(shape, k, in, n, state, out);
            EXPECT_LT(distance(out.get(), expected), kF32) << taps << " " << n;
            EXPECT_TRUE(same_bits(state.get(), tail)) << taps << " " << n;
        }
    }
}

TEST_F(CudaTest, DeltaGates) {
    Random random(11);
    const DeltaShape shape{.key_heads = 16, .value_heads = 33, .head_dim = 128, .taps = 4};
    constexpr uint32_t kRows = 70;
    std::vector<float> alpha = random.values(kRows * 33), beta = random.values(kRows * 33);
    alpha[5] = 50;
    alpha[6] = -50;
    const std::vector<float> dt = random.values(33), a = random.values(33);
    const Array<float> log_decay(gpu(), alpha), rate(gpu(), beta), d(gpu(), dt), f(gpu(), a);
    host().delta_gates(shape, dt.data(), a.data(), kRows, alpha.data(), beta.data());
    kernels().delta_gates(shape, d, f, kRows, log_decay, rate);
    EXPECT_LT(distance(log_decay.get(), alpha), kF32);
    EXPECT_LT(distance(rate.get(), beta), kF32);
}

}  // namespace
}  // namespace granary::gpu::cuda::test

// SPDX-License-Identifier: GPL-3.0-or-later
// Delta net, convolution and gates against the plain recurrence in double precision.
#include <gtest/gtest.h>

#include "gpu/host/host_kernels.h"
#include "tests/gpu/kernels_support.h"

namespace granary::gpu::test {
namespace {

using host::HostKernels;
using host::ThreadPool;

double sigmoid(double x) {
    return 1 / (1 + std::exp(-x));
}

struct Inputs {
    DeltaShape shape;
    uint32_t rows;
    std::vector<float> x, alpha, beta, state;
    Inputs(DeltaShape s, uint32_t n, unsigned seed) : shape(s), rows(n) {
        Random random(seed);
        x = random.values(size_t{n} * s.channels());
        alpha = random.values(size_t{n} * s.value_heads);
        beta = random.values(size_t{n} * s.value_heads);
        for (float& a : alpha) a = -0.3f * (a + 1);  // decays of 0.55 to 1
        for (float& b : beta) b = (b + 1) / 2;
        state = random.values(s.state_values());
    }
};

struct Result {
    std::vector<double> out, state;
};
Result exact(const Inputs& in) {
    const DeltaShape& s = in.shape;
    const size_t dim = s.head_dim;
    Result result{std::vector<double>(size_t{in.rows} * s.width()),
                  {in.state.begin(), in.state.end()}};
    for (size_t i = 0; i < in.rows; ++i)
        for (size_t h = 0; h < s.value_heads; ++h) {
            const float* row = &in.x[i * s.channels()];
            const auto unit = [&](const float* from) {
                std::vector<double> to(from, from + dim);
                double sum = 0;
                for (double v : to) sum += v * v;
                for (double& v : to) v /= std::sqrt(sum + static_cast<double>(s.norm_eps));
                return to;
            };
            const auto q = unit(row + h % s.key_heads * dim);
            const auto k = unit(row + (s.key_heads + h % s.key_heads) * dim);
            const float* v = row + (2 * s.key_heads + h) * dim;
            double* state = &result.state[h * dim * dim];
            const double decay = std::exp(static_cast<double>(in.alpha[i * s.value_heads + h]));
            for (size_t c = 0; c < dim; ++c) {
                double recalled = 0, read = 0;
                for (size_t r = 0; r < dim; ++r) {
                    state[r * dim + c] *= decay;
                    recalled += state[r * dim + c] * k[r];
                }
                const double delta =
                    static_cast<double>(in.beta[i * s.value_heads + h]) * (v[c] - recalled);
                for (size_t r = 0; r < dim; ++r) {
                    state[r * dim + c] += k[r] * delta;
                    read += state[r * dim + c] * q[r];
                }
                result.out[i * s.width() + h * dim + c] =
                    read / std::sqrt(static_cast<double>(dim));
            }
        }
    return result;
}

const DeltaShape kShapes[] = {{2, 4, 64, 4, 1e-6f}, {1, 3, 16, 4, 1e-6f}, {2, 6, 128, 4, 1e-6f}};

TEST(DeltaNet, BothFormsMatchDoublePrecision) {
    ThreadPool pool(2);
    HostKernels kernels(pool);
    for (const DeltaShape& shape : kShapes)
        for (const auto& [first, rows] : {std::pair{0u, 1u}, {0u, 64u}, {5u, 200u}, {127u, 3u}}) {
            Inputs in(shape, rows, rows);
            const Result expected = exact(in);
            std::vector<float> out(size_t{rows} * shape.width()), state = in.state;
            kernels.delta_net_prompt(shape, in.x.data(), in.alpha.data(), in.beta.data(), first,
                                     rows, state.data(), out.data());
            EXPECT_LT(distance(out, expected.out), 1e-6) << shape.head_dim << " " << rows;
            EXPECT_LT(distance(state, expected.state), 1e-6);
            state = in.state;
            kernels.delta_net_decode(shape, in.x.data(), in.alpha.data(), in.beta.data(), rows,
                                     state.data(), out.data());
            EXPECT_LT(distance(out, expected.out), 1e-6) << shape.head_dim << " " << rows;
            EXPECT_LT(distance(state, expected.state), 1e-6);
        }
}

TEST(DeltaNet, ChunksThatBeginAtMultiplesOf64GiveTheSameBits) {
    const DeltaShape shape = kShapes[0];
    Inputs in(shape, 300, 7);
    const auto run = [&](unsigned threads, uint32_t chunk) {
        ThreadPool pool(threads);
        HostKernels kernels(pool);
        std::vector<float> out(in.rows * size_t{shape.width()}), state = in.state;
        for (uint32_t first = 0; first < in.rows; first += chunk)
            kernels.delta_net_prompt(shape, &in.x[size_t{first} * shape.channels()],
                                     &in.alpha[size_t{first} * shape.value_heads],
                                     &in.beta[size_t{first} * shape.value_heads], first,
                                     std::min(chunk, in.rows - first), state.data(),
                                     &out[first * size_t{shape.width()}]);
        out.insert(out.end(), state.begin(), state.end());
        return out;
    };
    const auto whole = run(1, 300);
    for (const uint32_t chunk : {64u, 128u, 192u}) EXPECT_TRUE(same_bits(run(3, chunk), whole));
}

// Strong decays: the sums of logarithms go far below what exp can give, and nothing breaks.
TEST(DeltaNet, ForgetsWithoutOverflow) {
    ThreadPool pool(1);
    HostKernels kernels(pool);
    Inputs in(kShapes[0], 130, 9);
    for (float& a : in.alpha) a *= 200;
    const Result expected = exact(in);
    std::vector<float> out(in.rows * size_t{in.shape.width()}), state = in.state;
    kernels.delta_net_prompt(in.shape, in.x.data(), in.alpha.data(), in.beta.data(), 0, in.rows,
                             state.data(), out.data());
    EXPECT_LT(distance(out, expected.out), 1e-5);
    EXPECT_LT(distance(state, expected.state), 1e-5);
}

TEST(CausalConv, MatchesDoublePrecisionAndKeepsItsTail) {
    const DeltaShape shape = kShapes[0];
    const size_t channels = shape.channels();
    Random random(3);
    const std::vector<float> x = random.values(40 * channels),
                             kernel = random.values(shape.taps * channels),
                             before = random.values(shape.tail_values());
    std::vector<double> expected(x.size());
    for (size_t i = 0; i < 40; ++i)
        for (size_t c = 0; c < channels; ++c) {
            double sum = 0;
            for (size_t t = 0; t < shape.taps; ++t) {
                const size_t at = i + t;  // in before + x
                sum += static_cast<double>(kernel[c * shape.taps + t]) *
                       (at < 3 ? before[at * channels + c] : x[(at - 3) * channels + c]);
            }
            expected[i * channels + c] = sum * sigmoid(sum);
        }
    ThreadPool pool(3);
    HostKernels kernels(pool);
    std::vector<float> first;
    for (const uint32_t chunk : {40u, 1u, 2u, 7u, 33u}) {
        std::vector<float> out(x.size()), tail = before;
        for (uint32_t i = 0; i < 40; i += chunk)
            kernels.causal_conv(shape, kernel.data(), &x[i * channels], std::min(chunk, 40 - i),
                                tail.data(), &out[i * channels]);
        EXPECT_LT(distance(out, expected), 1e-6);
        EXPECT_TRUE(same_bits(tail, {x.end() - static_cast<ptrdiff_t>(3 * channels), x.end()}));
        if (first.empty()) first = out;
        EXPECT_TRUE(same_bits(out, first)) << chunk;
    }
}

TEST(Gates, MatchDoublePrecision) {
    ThreadPool pool(2);
    HostKernels kernels(pool);
    Random random(4);
    const uint32_t rows = 30, heads = 3, dim = 40, width = heads * dim;
    AttentionShape shape;
    shape.heads = heads;
    shape.head_dim = dim;

    const std::vector<float> pairs = random.values(size_t{rows} * 2 * width);
    Rows out(kernels, rows, width, Arithmetic::fast);
    std::vector<double> expected(out.values.size());
    for (size_t i = 0; i < expected.size(); ++i) {
        const size_t at = i / dim * 2 * dim + i % dim;
        out.values[i] = pairs[at];
        expected[i] = pairs[at] * sigmoid(static_cast<double>(pairs[at + dim]));
    }
    kernels.gate_heads(shape, pairs.data(), out.view);
    EXPECT_LT(distance(out.values, expected), 1e-6);
    Rows again(kernels, rows, width, Arithmetic::fast);
    std::copy(out.values.begin(), out.values.end(), again.values.begin());
    kernels.quantise(again.view);
    EXPECT_EQ(std::memcmp(out.view.codes, again.view.codes, rows * kernels.code_bytes(width)), 0);

    const std::vector<float> x = random.values(size_t{rows} * width), weight = random.values(dim);
    const float* gate = pairs.data();
    kernels.gated_norm(x.data(), weight.data(), 1e-5f, dim, gate, out.view);
    for (size_t head = 0; head < rows * heads; ++head) {
        double sum = 0;
        for (size_t i = 0; i < dim; ++i)
            sum += static_cast<double>(x[head * dim + i]) * x[head * dim + i];
        for (size_t i = 0; i < dim; ++i) {
            const double g = static_cast<double>(gate[head * dim + i]);
            expected[head * dim + i] =
                x[head * dim + i] / std::sqrt(sum / dim + 1e-5) * weight[i] * g * sigmoid(g);
        }
    }
    EXPECT_LT(distance(out.values, expected), 1e-6);
}

TEST(Gates, OfTheDeltaNet) {
    ThreadPool pool(1);
    HostKernels kernels(pool);
    const DeltaShape shape{1, 2, 16, 4, 1e-6f};
    const std::vector<float> dt{0.5f, -1}, a{-2, -0.25f};
    const std::vector<float> alpha_in{0, 100, -100, 3}, beta_in{0, -90, 90, 1};
    std::vector<float> alpha = alpha_in, beta = beta_in;
    kernels.delta_gates(shape, dt.data(), a.data(), 2, alpha.data(), beta.data());
    for (size_t i = 0; i < 4; ++i) {
        const double x = static_cast<double>(alpha_in[i]) + static_cast<double>(dt[i % 2]);
        EXPECT_NEAR(alpha[i], std::log1p(std::exp(x)) * static_cast<double>(a[i % 2]), 1e-5);
        EXPECT_NEAR(beta[i], sigmoid(static_cast<double>(beta_in[i])), 1e-6);
    }
}

TEST(SharedExpert, TakesEveryRowWithItsGate) {
    ThreadPool pool(2);
    HostKernels kernels(pool);
    Random random(5);
    const uint32_t rows = 9, hidden = 70;
    const std::vector<float> gate = random.values(hidden), x = random.values(size_t{rows} * hidden);
    std::vector<int32_t> expert(rows, -1), count(1), first(2), order(rows, -1);
    std::vector<float> weight(rows);
    kernels.route_shared(
        gate.data(), x.data(), hidden,
        {expert.data(), weight.data(), count.data(), first.data(), order.data(), rows});
    EXPECT_EQ(count[0], 9);
    EXPECT_EQ(first, (std::vector<int32_t>{0, 9}));
    for (size_t row = 0; row < rows; ++row) {
        double dot = 0;
        for (size_t i = 0; i < hidden; ++i)
            dot += static_cast<double>(gate[i]) * x[row * hidden + i];
        EXPECT_EQ(expert[row], 0);
        EXPECT_EQ(order[row], static_cast<int32_t>(row));
        EXPECT_NEAR(weight[row], sigmoid(dot), 1e-6);
    }
}

}  // namespace
}  // namespace granary::gpu::test

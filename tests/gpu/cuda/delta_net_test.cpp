// SPDX-License-Identifier: GPL-3.0-or-later
// Both forms of the delta net against the host's.
#include "gpu/cuda/delta_net.h"
#include "tests/gpu/cuda/support.h"

namespace granary::gpu::cuda::test {
namespace {

// f32 in another order; the prompt form solves what the host substitutes.
constexpr double kBound = 2e-5;
// Where tensor cores do: q, k, the solution and the state are rounded to 11 bits as factors, and
// the state itself is not.
constexpr double kHalfBound = 1e-3;

constexpr std::initializer_list<DeltaShape> kShapes = {
    {2, 4, 64, 4, 1e-6f},  {1, 3, 16, 4, 1e-6f},  {1, 2, 48, 4, 1e-6f},   {1, 2, 256, 4, 1e-6f},
    {2, 6, 128, 4, 1e-6f}, {2, 8, 128, 4, 1e-6f}, {16, 32, 128, 4, 1e-6f}};
constexpr size_t kSomeShapes = 5;

struct Outcome {
    std::vector<float> out, state;
};

class CudaDeltaNet : public CudaTest {
  protected:
    struct Inputs {
        DeltaShape shape;
        uint32_t rows;
        std::vector<float> x, alpha, beta, state;
        Inputs(const DeltaShape& s, uint32_t n) : shape(s), rows(n) {
            Random random(n);
            x = random.values(size_t{n} * s.channels());
            alpha = random.values(size_t{n} * s.value_heads);
            beta = random.values(size_t{n} * s.value_heads);
            for (float& a : alpha) a = -0.3f * (a + 1);  // decays of 0.55 to 1
            for (float& b : beta) b = (b + 1) / 2;
            state = random.values(s.state_values());
        }
    };
    Outcome expected(const Inputs& in, uint32_t first_cell, bool prompt) {
        Outcome to{std::vector<float>(size_t{in.rows} * in.shape.width()), in.state};
        Inputs spent = in;
        if (prompt)
            host().delta_net_prompt(in.shape, spent.x.data(), spent.alpha.data(), spent.beta.data(),
                                    first_cell, in.rows, to.state.data(), to.out.data());
        else
            host().delta_net_decode(in.shape, in.x.data(), in.alpha.data(), in.beta.data(), in.rows,
                                    to.state.data(), to.out.data());
        return to;
    }
    // In calls of `step` rows.
    Outcome got(const Inputs& in, uint32_t first_cell, bool prompt, uint32_t step) {
        const DeltaShape& s = in.shape;
        const Array<float> x(gpu(), in.x), alpha(gpu(), in.alpha), beta(gpu(), in.beta),
            state(gpu(), in.state), out(gpu(), size_t{in.rows} * s.width());
        for (uint32_t i = 0; i < in.rows; i += step) {
            const uint32_t n = std::min(step, in.rows - i);
            const size_t gates = size_t{i} * s.value_heads;
            float* const from = x.data() + size_t{i} * s.channels();
            float* const to = out.data() + size_t{i} * s.width();
            if (prompt)
                kernels().delta_net_prompt(s, from, alpha.data() + gates, beta.data() + gates,
                                           first_cell + i, n, state, to);
            else
                kernels().delta_net_decode(s, from, alpha.data() + gates, beta.data() + gates, n,
                                           state, to);
        }
        return {out.get(), state.get()};
    }
};

TEST_F(CudaDeltaNet, PromptMatchesTheHostAndDoesNotDependOnItsChunks) {
    for (const DeltaShape& shape : cases(kSomeShapes, kShapes)) {
        SCOPED_TRACE(std::to_string(shape.value_heads) + " heads of " +
                     std::to_string(shape.head_dim));
        for (const auto& [first, n] : cases<std::pair<uint32_t, uint32_t>>(
                 3, {{0, 200}, {37, 150}, {63, 2}, {0, 1}, {0, 64}, {128, 1100}})) {
            gpu().reset();
            const Inputs in(shape, n);
            const Outcome host = expected(in, first, true), whole = got(in, first, true, n);
            const double bound = shape.head_dim == kDeltaMmaDim ? kHalfBound : kBound;
            EXPECT_LT(distance(whole.out, host.out), bound) << n << " at " << first;
            EXPECT_LT(distance(whole.state, host.state), bound) << n << " at " << first;
            if (first % kDeltaCells != 0) continue;
            for (const uint32_t step : {64u, 192u}) {
                const Outcome cut = got(in, first, true, step);
                EXPECT_TRUE(same_bits(cut.out, whole.out)) << n << " in calls of " << step;
                EXPECT_TRUE(same_bits(cut.state, whole.state)) << n << " in calls of " << step;
            }
        }
    }
}

// What an engine does: the convolution on the way, outputs in the place of spent channels.
TEST_F(CudaDeltaNet, ConvolvesOnTheWay) {
    for (const DeltaShape& shape : cases(kSomeShapes, kShapes))
        for (const auto& [first, n] :
             cases<std::pair<uint32_t, uint32_t>>(3, {{0, 1}, {62, 5}, {37, 150}, {128, 700}})) {
            gpu().reset();
            Inputs in(shape, n);
            Random random(n + 1);
            const std::vector<float> kernel = random.values(size_t{shape.channels()} * shape.taps);
            const std::vector<float> before = random.values(shape.tail_values());
            const auto run = [&](Kernels& kernels, bool on_gpu, uint32_t step) {
                std::vector<float> x = in.x, alpha = in.alpha, beta = in.beta, state = in.state,
                                   tail = before, convolved(x.size());
                std::vector<uint32_t> stops;
                for (uint32_t i = step; i <= n; i += step) stops.push_back(i);
                size_t seen = 0;
                const auto work = [&](const float* k, float* x_at, float* c, float* a, float* b,
                                      float* s, float* t) {
                    kernels.conv_and_delta_net(shape, {k, x_at, t, c, a, b, first, n, s, x_at},
                                               stops, [&](size_t i) { seen += i == seen; });
                };
                Outcome to;
                if (on_gpu) {
                    const Array<float> x_at(gpu(), x), c(gpu(), x.size()), a(gpu(), alpha),
                        b(gpu(), beta), s(gpu(), state), t(gpu(), tail), k(gpu(), kernel);
                    work(k, x_at, c, a, b, s, t);
                    x = x_at.get();
                    state = s.get();
                    tail = t.get();
                } else {
                    work(kernel.data(), x.data(), convolved.data(), alpha.data(), beta.data(),
                         state.data(), tail.data());
                }
                EXPECT_EQ(seen, stops.size());
                x.resize(size_t{n} * shape.width());
                state.insert(state.end(), tail.begin(), tail.end());
                return Outcome{x, state};
            };
            const double bound = shape.head_dim == kDeltaMmaDim ? kHalfBound : kBound;
            const Outcome whole = run(kernels(), true, n), host_one = run(host(), false, n);
            const std::string what = std::to_string(shape.value_heads) + " heads of " +
                                     std::to_string(shape.head_dim) + ", " + std::to_string(n) +
                                     " at " + std::to_string(first);
            EXPECT_LT(distance(whole.out, host_one.out), bound) << what;
            EXPECT_LT(distance(whole.state, host_one.state), bound) << what;
            const size_t tail = shape.tail_values();
            EXPECT_TRUE(same_bits(
                {whole.state.end() - static_cast<ptrdiff_t>(tail), whole.state.end()},
                {host_one.state.end() - static_cast<ptrdiff_t>(tail), host_one.state.end()}))
                << what;
            if (first % kDeltaCells != 0) continue;
            const Outcome cut = run(kernels(), true, 64);
            EXPECT_TRUE(same_bits(cut.out, whole.out)) << what;
            EXPECT_TRUE(same_bits(cut.state, whole.state)) << what;
        }
}

TEST_F(CudaDeltaNet, DecodeMatchesTheHostAndDoesNotDependOnItsRows) {
    for (const DeltaShape& shape : cases(kSomeShapes, kShapes)) {
        SCOPED_TRACE(std::to_string(shape.value_heads) + " heads of " +
                     std::to_string(shape.head_dim));
        gpu().reset();
        const Inputs in(shape, 8);
        const Outcome host = expected(in, 5, false), whole = got(in, 5, false, 8);
        EXPECT_LT(distance(whole.out, host.out), kBound);
        EXPECT_LT(distance(whole.state, host.state), kBound);
        for (const uint32_t step : {1u, 3u}) {
            const Outcome cut = got(in, 5, false, step);
            EXPECT_TRUE(same_bits(cut.out, whole.out)) << step;
            EXPECT_TRUE(same_bits(cut.state, whole.state)) << step;
        }
    }
}

// One launch for the net and the norm behind it, against one after the other.
TEST_F(CudaDeltaNet, DecodeWithItsNorm) {
    for (const DeltaShape& shape : cases(kSomeShapes, kShapes)) {
        SCOPED_TRACE(std::to_string(shape.value_heads) + " heads of " +
                     std::to_string(shape.head_dim));
        gpu().reset();
        const Inputs in(shape, 5);
        Random random(6);
        const std::vector<float> weight = random.values(shape.head_dim);
        const std::vector<float> gate = random.values(size_t{in.rows} * shape.width());
        const Array<float> x(gpu(), in.x), alpha(gpu(), in.alpha), beta(gpu(), in.beta),
            w(gpu(), weight), g(gpu(), gate);
        const size_t code_row = kernels().code_bytes(shape.width());
        struct Result {
            std::vector<float> values, state;
            std::vector<std::byte> codes;
        };
        const auto run = [&](bool at_once, uint32_t step) {
            const Array<float> state(gpu(), in.state), net(gpu(), size_t{in.rows} * shape.width()),
                values(gpu(), size_t{in.rows} * shape.width());
            const Array<std::byte> codes(gpu(), std::vector<std::byte>(in.rows * code_row));
            for (uint32_t i = 0; i < in.rows; i += step) {
                const uint32_t n = std::min(step, in.rows - i);
                const size_t gates = size_t{i} * shape.value_heads, at = size_t{i} * shape.width();
                const Activations out{values.data() + at, codes.data() + i * code_row, n,
                                      shape.width(), true};
                if (at_once)
                    kernels().delta_net_decode_and_norm(
                        shape, x.data() + size_t{i} * shape.channels(), alpha.data() + gates,
                        beta.data() + gates, n, state, net.data() + at, w, 1e-6f, g.data() + at,
                        out);
                else
                    kernels().Kernels::delta_net_decode_and_norm(
                        shape, x.data() + size_t{i} * shape.channels(), alpha.data() + gates,
                        beta.data() + gates, n, state, net.data() + at, w, 1e-6f, g.data() + at,
                        out);
            }
            return Result{values.get(), state.get(), codes.get()};
        };
        const Result apart = run(false, 5), whole = run(true, 5), steps = run(true, 1);
        EXPECT_LT(distance(whole.values, apart.values), kBound);
        EXPECT_LT(distance(whole.state, apart.state), kBound);
        EXPECT_TRUE(same_bits(steps.values, whole.values));
        EXPECT_TRUE(same_bits(steps.state, whole.state));
        EXPECT_EQ(steps.codes, whole.codes);
        // Codes are those of the values.
        const Array<float> values(gpu(), whole.values);
        const Array<std::byte> codes(gpu(), std::vector<std::byte>(in.rows * code_row));
        kernels().quantise({values, codes, in.rows, shape.width(), true});
        EXPECT_EQ(codes.get(), whole.codes);
    }
}

}  // namespace
}  // namespace granary::gpu::cuda::test

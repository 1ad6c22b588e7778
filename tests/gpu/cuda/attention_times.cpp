// SPDX-License-Identifier: GPL-3.0-or-later
// Times of attention and of the delta net at the shapes of real models. Not run by default:
// --gtest_also_run_disabled_tests --gtest_filter=*Times*
#include <chrono>
#include <cstdio>
#include <functional>

#include "tests/gpu/cuda/support.h"

namespace granary::gpu::cuda::test {
namespace {

class CudaTimes : public CudaTest {
  protected:
    // Milliseconds of one call among `count` queued together, the best of three times.
    double time(int count, const std::function<void(int)>& call) {
        double best = 1e9;
        for (int round = 0; round < 4; ++round) {
            gpu().synchronize();
            const auto begin = std::chrono::steady_clock::now();
            for (int i = 0; i < count; ++i) call(i);
            gpu().synchronize();
            const std::chrono::duration<double, std::milli> taken =
                std::chrono::steady_clock::now() - begin;
            if (round > 0) best = std::min(best, taken.count() / count);
        }
        return best;
    }
    // The same of calls recorded together and replayed, as a decode step is.
    double time_replayed(int count, const std::function<void(int)>& call) {
        EXPECT_TRUE(gpu().device().begin_recording());
        for (int i = 0; i < count; ++i) call(i);
        const auto recording = gpu().device().end_recording();
        EXPECT_TRUE(recording);
        return recording ? time(1, [&](int) { gpu().device().replay(*recording); }) / count : 0;
    }
    // Random bytes whose 16-bit halves are f16 below 1.
    std::byte* random_memory(size_t bytes) {
        constexpr size_t kPiece = size_t{16} << 20;
        static const std::vector<uint16_t> piece = [] {
            Random random(1);
            std::vector<uint16_t> values(kPiece / 2);
            for (uint16_t& x : values) x = static_cast<uint16_t>(random.engine() & 0xbbff);
            return values;
        }();
        std::byte* const memory = gpu().allocate(bytes);
        for (size_t at = 0; at < bytes; at += kPiece)
            gpu().device().copy(StreamId::compute, memory + at, piece.data(),
                                std::min(kPiece, bytes - at));
        return memory;
    }
};

struct Heads {
    uint32_t heads, kv_heads, dim;
};

TEST_F(CudaTimes, DISABLED_Decode) {
    for (const Heads& heads : {Heads{32, 4, 128}, Heads{16, 2, 256}, Heads{64, 8, 64}}) {
        AttentionShape shape;
        shape.heads = heads.heads;
        shape.kv_heads = heads.kv_heads;
        shape.head_dim = heads.dim;
        shape.scale = 0.1f;
        const uint32_t row = heads.heads * heads.dim;
        for (const KvFormat format :
             {KvFormat::f16, KvFormat::int8, KvFormat::k8v4, KvFormat::q4}) {
            for (const uint32_t cells : {512u, 1000u, 4096u, 32768u, 524288u}) {
                gpu().reset();
                const KvParts parts = kv_parts(format, heads.kv_heads, heads.dim);
                // Layers in turn, so that nothing comes from the cache.
                const uint32_t layers = cells < 10000 ? 64 : cells < 100000 ? 8 : 1;
                const size_t step = parts.bytes * layers;
                std::byte* const memory =
                    random_memory(step * ((cells + kStepCells - 1) / kStepCells));
                const Array<DecodePlace> place(gpu(),
                                               std::vector<DecodePlace>{{memory, cells - 2, 0}});
                Random random(2);
                for (const uint32_t n : {1u, 2u}) {
                    const Array<float> q(gpu(), random.values(size_t{n} * row)),
                        values(gpu(), size_t{n} * row);
                    const Array<std::byte> codes(gpu(), n * kernels().code_bytes(row));
                    const double ms = time_replayed(cells < 100000 ? 64 : 8, [&](int i) {
                        const KvView view{nullptr, step,         parts.k,
                                          parts.v, place.data(), i % layers * parts.bytes};
                        kernels().attention_decode(shape, q, view, {values, codes, n, row});
                    });
                    std::printf("decode %u/%u x %u %-4s %6u cells %u rows %8.1f us %7.0f GB/s\n",
                                heads.heads, heads.kv_heads, heads.dim,
                                kv_format_name(format).data(), cells, n, ms * 1e3,
                                double(parts.bytes) / kStepCells * cells / ms * 1e-6);
                }
            }
        }
    }
}

TEST_F(CudaTimes, DISABLED_Prompt) {
    for (const Heads& heads : {Heads{32, 4, 128}, Heads{16, 2, 256}, Heads{64, 8, 64}}) {
        AttentionShape shape;
        shape.heads = heads.heads;
        shape.kv_heads = heads.kv_heads;
        shape.head_dim = heads.dim;
        shape.scale = 0.1f;
        const uint32_t row = heads.heads * heads.dim;
        for (const KvFormat format : {KvFormat::f16, KvFormat::int8, KvFormat::q4}) {
            for (const auto& [n, first] :
                 {std::pair{4096u, 0u}, {500u, 32268u}, {4096u, 28672u}, {4096u, 126976u}}) {
                gpu().reset();
                const KvParts parts = kv_parts(format, heads.kv_heads, heads.dim);
                std::byte* const memory =
                    random_memory(parts.bytes * ((first + n) / kStepCells + 1));
                const KvView view{memory, parts.bytes, parts.k, parts.v, nullptr, 0};
                Random random(2);
                const Array<float> q(gpu(), random.values(size_t{n} * row)),
                    values(gpu(), size_t{n} * row);
                const Array<std::byte> codes(gpu(), n * kernels().code_bytes(row));
                const double ms = time(4, [&](int) {
                    kernels().attention_prompt(shape, q, first, view, {values, codes, n, row});
                });
                const double flop = 4.0 * n * (first + (n + 1) / 2.0) * row;
                std::printf("prompt %u/%u x %u %-4s %u at %6u %9.3f ms %7.0f TFLOP/s\n",
                            heads.heads, heads.kv_heads, heads.dim, kv_format_name(format).data(),
                            n, first, ms, flop / ms * 1e-9);
            }
        }
    }
}

TEST_F(CudaTimes, DISABLED_DeltaNet) {
    const DeltaShape shape{16, 32, 128, 4, 1e-6f};  // Qwen3.6-35B
    Random random(3);
    const uint32_t n = 4096;
    std::vector<float> gates = random.values(size_t{n} * shape.value_heads);
    for (float& x : gates) x = -0.3f * (x + 1);
    const Array<float> x(gpu(), random.values(size_t{n} * shape.channels())), alpha(gpu(), gates),
        beta(gpu(), random.values(gates.size())), state(gpu(), shape.state_values()),
        out(gpu(), size_t{n} * shape.width());
    gpu().device().fill(StreamId::compute, state, 0, state.size() * sizeof(float));
    const Array<float> kernel(gpu(), random.values(size_t{shape.channels()} * shape.taps)),
        tail(gpu(), shape.tail_values()), convolved(gpu(), x.size());
    // The gates are spent by the first call; times do not depend on them.
    const double prompt = time(4, [&](int) {
        kernels().conv_and_delta_net(
            shape, {kernel, x, tail, convolved, alpha, beta, 0, n, state, out}, {}, {});
    });
    const double decode = time_replayed(
        32, [&](int) { kernels().delta_net_decode(shape, x, alpha, beta, 1, state, out); });
    std::printf(
        "delta net 16/32 x 128: %u tokens, convolved, %.1f us, one token %.2f us, %.0f GB/s\n", n,
        prompt * 1e3, decode * 1e3, 2e-6 * 4 * shape.state_values() / decode);
}

}  // namespace
}  // namespace granary::gpu::cuda::test

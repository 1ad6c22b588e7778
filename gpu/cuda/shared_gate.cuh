// SPDX-License-Identifier: GPL-3.0-or-later
// The weight of a shared expert: sigmoid(gate . x), in double as on the host.
#pragma once

#include "gpu/cuda/norm_decode.cuh"

namespace granary::gpu::cuda {
namespace {

// Of one row, by a block of at least kGateThreads, all of it under way at once. Every thread gets
// it. So many of the threads, however many there are: the sum's order is that of every block.
constexpr uint32_t kGateThreads = 128;
__device__ __forceinline__ float shared_weight(const float* gate, const float* x, uint32_t hidden) {
    __shared__ double sums[kGateThreads / 32];
    const uint32_t end = threadIdx.x < kGateThreads ? hidden : 0;
    double dot = 0;
#pragma unroll 4
    for (uint32_t quad = threadIdx.x; quad * 4 < end; quad += kGateThreads) {
        float g[4], v[4];
        load_quad(gate, quad, hidden, g);
        load_quad(x, quad, hidden, v);
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i)
            dot = fma(static_cast<double>(g[i]), static_cast<double>(v[i]), dot);
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) dot += __shfl_xor_sync(~0u, dot, distance);
    if (threadIdx.x < kGateThreads && threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = dot;
    __syncthreads();
    dot = 0;
    for (const double sum : sums) dot += sum;
    return static_cast<float>(1 / (1 + exp(-dot)));
}

}  // namespace
}  // namespace granary::gpu::cuda

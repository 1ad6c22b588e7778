// SPDX-License-Identifier: GPL-3.0-or-later
// The largest of a row of logits, in one launch: blocks leave what they found, the last one to
// finish looks through that.
#include <cstddef>
#include <cstdint>

#include "gpu/cuda/early.cuh"

namespace granary::gpu::cuda {
namespace {

// Larger for larger values, and for lower indices among equals. NaN never is the largest; where
// nothing is larger than minus infinity, index 0 is.
__device__ __forceinline__ unsigned long long rank_of(float value, uint32_t index) {
    if (!(value > -INFINITY)) return index == 0 ? ~0u : 0;
    const uint32_t bits = __float_as_uint(value == 0 ? 0.0f : value);
    const uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return static_cast<unsigned long long>(ordered) << 32 | (~0u - index);
}

__device__ __forceinline__ unsigned long long block_most(unsigned long long rank) {
    __shared__ unsigned long long ranks[8];
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        const unsigned long long other = __shfl_xor_sync(~0u, rank, distance);
        rank = rank > other ? rank : other;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) ranks[threadIdx.x / 32] = rank;
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) rank = rank > ranks[i] ? rank : ranks[i];
    return rank;
}

}  // namespace

// Grid (parts, rows). found: [rows, parts]; *finished is 0 before and after. Bytes: 4 a value.
extern "C" __global__ void __launch_bounds__(256)
    argmax(const float* logits, uint32_t vocab, unsigned long long* found, uint32_t* finished,
           int32_t* best) {
    let_next_begin();
    wait_for_kernels_ahead();
    const float* const row = logits + size_t{blockIdx.y} * vocab;
    const uint32_t stride = gridDim.x * 256;
    unsigned long long rank = 0;
#pragma unroll 8
    for (uint32_t i = blockIdx.x * 256 + threadIdx.x; i < vocab; i += stride) {
        const unsigned long long other = rank_of(row[i], i);
        rank = rank > other ? rank : other;
    }
    rank = block_most(rank);

    __shared__ bool last;
    if (threadIdx.x == 0) {
        found[blockIdx.y * gridDim.x + blockIdx.x] = rank;
        __threadfence();
        last = atomicAdd(finished, 1) + 1 == gridDim.x * gridDim.y;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    for (uint32_t r = threadIdx.x / 32; r < gridDim.y; r += 8) {
        unsigned long long most = 0;
        for (uint32_t i = threadIdx.x % 32; i < gridDim.x; i += 32) {
            const unsigned long long other =
                *reinterpret_cast<volatile unsigned long long*>(&found[r * gridDim.x + i]);
            most = most > other ? most : other;
        }
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2) {
            const unsigned long long other = __shfl_xor_sync(~0u, most, distance);
            most = most > other ? most : other;
        }
        if (threadIdx.x % 32 == 0)
            best[r] = static_cast<int32_t>(~0u - static_cast<uint32_t>(most));
    }
    if (threadIdx.x == 0) *finished = 0;
}

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Online softmax over scores as tensor cores leave them: of a tile of 16 rows, a thread holds rows
// g and g + 8, columns 2t, 2t + 1 of each 8, as score[4 * octet + 2 * half + column]. The running
// maximum is that of Milakov and Gimelshein 2018 (arXiv 1805.02867).
#pragma once

#include "gpu/cuda/mma.cuh"

namespace granary::gpu::cuda {

__device__ __forceinline__ float exp2_fast(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// Two rows of a thread: all four threads of a row hold the same numbers.
struct SoftmaxRows {
    float maximum[2] = {-INFINITY, -INFINITY};  // of the scores, in units of ln 2
    float sum[2] = {0, 0};                      // of 2^(score - maximum)

    // Scores become weights 2^(score - maximum). `factor`: what older results must be multiplied
    // by, as sum has been.
    template <uint32_t kCount>
    __device__ __forceinline__ void weigh(float (&score)[kCount], float (&factor)[2]) {
#pragma unroll
        for (uint32_t half = 0; half < 2; ++half) {
            float top = maximum[half];
#pragma unroll
            for (uint32_t i = 2 * half; i < kCount; i += 4)
                top = fmaxf(top, fmaxf(score[i], score[i + 1]));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
            factor[half] = exp2_fast(maximum[half] - top);
            maximum[half] = top;
            float more = 0;
#pragma unroll
            for (uint32_t i = 2 * half; i < kCount; i += 4) {
                score[i] = exp2_fast(score[i] - top);
                score[i + 1] = exp2_fast(score[i + 1] - top);
                more += score[i] + score[i + 1];
            }
            more += __shfl_xor_sync(~0u, more, 1);
            more += __shfl_xor_sync(~0u, more, 2);
            sum[half] = sum[half] * factor[half] + more;
        }
    }
};

// Scores of cells after `last` (of row g, of row g + 8) do not count. `cell` is the tile's first.
template <uint32_t kCount>
__device__ __forceinline__ void mask(float (&score)[kCount], uint32_t cell,
                                     const uint32_t (&last)[2]) {
#pragma unroll
    for (uint32_t i = 0; i < kCount; ++i)
        if (cell + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2 > last[i / 2 % 2]) score[i] = -INFINITY;
}

// Weights as the A operand of products over 16 columns: [column / 16][register].
template <uint32_t kCount>
__device__ __forceinline__ void pack(const float (&score)[kCount],
                                     uint32_t (&weight)[kCount / 8][4]) {
#pragma unroll
    for (uint32_t i = 0; i < kCount / 2; ++i)
        weight[i / 4][i % 4] = bits(__floats2half2_rn(score[2 * i], score[2 * i + 1]));
}

template <uint32_t kCount>
__device__ __forceinline__ void scale(float (&values)[kCount], const float (&factor)[2]) {
#pragma unroll
    for (uint32_t i = 0; i < kCount; ++i) values[i] *= factor[i / 2 % 2];
}

}  // namespace granary::gpu::cuda

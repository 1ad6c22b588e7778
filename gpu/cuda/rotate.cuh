// SPDX-License-Identifier: GPL-3.0-or-later
// The rotation of KvPart::rotated and what attention leaves behind, in device code.
#pragma once

#include <cuda_fp16.h>

#include "gpu/cuda/ordered_rows.h"

namespace granary::gpu::cuda {

// `rows` of them in place, by all threads of a block; x lies in shared memory and is complete. The
// caller waits for the block before it reads.
__device__ __forceinline__ void rotate_in_block(float* x, uint32_t dim, uint32_t rows = 1) {
    const uint32_t run = dim & (~dim + 1);
    for (uint32_t distance = 1; distance < run; distance *= 2) {
        for (uint32_t i = threadIdx.x; i < rows * dim / 2; i += blockDim.x) {
            const uint32_t at = i / distance * 2 * distance + i % distance;
            const float a = x[at], b = x[at + distance];
            x[at] = a + b;
            x[at + distance] = a - b;
        }
        __syncthreads();
    }
    const float scale = rsqrtf(static_cast<float>(run));
    for (uint32_t i = threadIdx.x; i < rows * dim; i += blockDim.x) x[i] *= scale;
}

// A head's results from shared memory to `values` [dim] and, where `codes` is not null, to the
// token's ordered row: `head` of `heads`. The last head zeroes what pads the row.
__device__ __forceinline__ void store_head(const float* x, uint32_t dim, uint32_t head,
                                           uint32_t heads, float* values, std::byte* codes) {
    auto* const row = reinterpret_cast<__half*>(codes);
    for (uint32_t i = threadIdx.x; i < dim; i += blockDim.x) {
        values[i] = x[i];
        if (codes)
            row[ordered_column(head * dim + i)] =
                __float2half_rn(fminf(fmaxf(x[i], -65504.f), 65504.f));
    }
    const uint32_t cols = heads * dim;
    if (codes && head + 1 == heads && threadIdx.x < (32 - cols % 32) % 32)
        row[ordered_column(cols + threadIdx.x)] = __float2half_rn(0);
}

}  // namespace granary::gpu::cuda

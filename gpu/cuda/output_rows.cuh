// SPDX-License-Identifier: GPL-3.0-or-later
// What experts put out, as f32 or f16, eight columns at a time; zeros past a row's end.
#pragma once

#include "gpu/cuda/rows.cuh"

namespace granary::gpu::cuda {
namespace {

__device__ __forceinline__ void load_output(const float* row, uint32_t octet, uint32_t cols,
                                            float (&v)[8]) {
    load_octet(row, octet, cols, v);
}
__device__ __forceinline__ void load_output(const __half* row, uint32_t octet, uint32_t cols,
                                            float (&v)[8]) {
    const uint32_t first = octet * 8;
    if (first + 8 <= cols && aligned_16(row + first)) {
        const uint4 words = *reinterpret_cast<const uint4*>(row + first);
        const uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&pairs[i]));
            v[2 * i] = pair.x;
            v[2 * i + 1] = pair.y;
        }
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) v[i] = first + i < cols ? __half2float(row[first + i]) : 0.0f;
}

}  // namespace
}  // namespace granary::gpu::cuda

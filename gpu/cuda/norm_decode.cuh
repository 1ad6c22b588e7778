// SPDX-License-Identifier: GPL-3.0-or-later
// The RMS norm of a decode step's row by one block, four columns a thread: what it takes is
// latency, so that many threads do little each.
#pragma once

#include "gpu/cuda/output_rows.cuh"
#include "gpu/cuda/rows.cuh"

namespace granary::gpu::cuda {
namespace {

// Columns 4 quad .. of a row; zeros past its end.
__device__ __forceinline__ void load_quad(const float* row, uint32_t quad, uint32_t cols,
                                          float (&v)[4]) {
    const uint32_t first = quad * 4;
    if (first + 4 <= cols && aligned_16(row + first)) {
        const float4 all = *reinterpret_cast<const float4*>(row + first);
        v[0] = all.x, v[1] = all.y, v[2] = all.z, v[3] = all.w;
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) v[i] = first + i < cols ? row[first + i] : 0.0f;
}
__device__ __forceinline__ void load_quad(const __half* row, uint32_t quad, uint32_t cols,
                                          float (&v)[4]) {
    const uint32_t first = quad * 4;
    if (first + 4 <= cols && (reinterpret_cast<uintptr_t>(row + first) & 7) == 0) {
        const uint2 words = *reinterpret_cast<const uint2*>(row + first);
        const float2 low = __half22float2(*reinterpret_cast<const __half2*>(&words.x));
        const float2 high = __half22float2(*reinterpret_cast<const __half2*>(&words.y));
        v[0] = low.x, v[1] = low.y, v[2] = high.x, v[3] = high.y;
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) v[i] = first + i < cols ? __half2float(row[first + i]) : 0.0f;
}
__device__ __forceinline__ void store_quad(float* row, uint32_t quad, uint32_t cols,
                                           const float (&v)[4]) {
    const uint32_t first = quad * 4;
    if (first + 4 <= cols && aligned_16(row + first)) {
        *reinterpret_cast<float4*>(row + first) = make_float4(v[0], v[1], v[2], v[3]);
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i)
        if (first + i < cols) row[first + i] = v[i];
}

// A row's norm, by kThreads threads. quads(quad, v): its columns 4 quad .., asked for once; where
// that is all a thread has, they stay in registers. Weights of those may be read before
// (first_weight, ones where there are none). values and codes may be null; both: no norm.
template <uint32_t kThreads, class Quads>
__device__ __forceinline__ void norm_row(const Quads& quads, const float* row, uint32_t cols,
                                         const float* weight, const float (&first_weight)[4],
                                         float eps, float* values, std::byte* codes) {
    __shared__ float sums[kThreads / 32];
    float v[4] = {}, sum = 0;
    for (uint32_t quad = threadIdx.x; quad * 4 < cols; quad += kThreads) {
        quads(quad, v);
#pragma unroll
        for (const float value : v) sum = fmaf(value, value, sum);
    }
    if (!values && !codes) return;
    const float total = block_sum<kThreads>(sum, sums);
    const float factor = 1.0f / sqrtf(total / static_cast<float>(cols) + eps);
    for (uint32_t quad = threadIdx.x; quad < ordered_octets(cols) * 2; quad += kThreads) {
        float w[4] = {first_weight[0], first_weight[1], first_weight[2], first_weight[3]};
        if (cols > 4 * kThreads) {  // else they are still there
            load_quad(row, quad, cols, v);
            if (weight) load_quad(weight, quad, cols, w);
        }
        float normed[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i)
            normed[i] = quad * 4 + i < cols ? v[i] * factor * w[i] : 0.0f;
        if (values) store_quad(values, quad, cols, normed);
        if (codes) store_decode_codes(codes, quad, normed);
    }
}

// What first_weight is.
__device__ __forceinline__ void load_first_weight(const float* weight, uint32_t cols,
                                                  float (&w)[4]) {
#pragma unroll
    for (float& value : w) value = 1;
    if (weight) load_quad(weight, threadIdx.x, cols, w);
}

}  // namespace
}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Rows of a decode step, four columns ("a quad") a thread: what its kernels take is latency, so
// that many threads do little each.
#pragma once

#include "gpu/cuda/rows.cuh"

namespace granary::gpu::cuda {
namespace {

// Whether rows of these are whole quads at multiples of 16 bytes, which spares every access a
// question. Null counts as such.
__device__ __forceinline__ bool whole_quads(uint32_t cols, const void* a, const void* b,
                                            const void* c, const void* d) {
    const auto bits = reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b) |
                      reinterpret_cast<uintptr_t>(c) | reinterpret_cast<uintptr_t>(d);
    return cols % 8 == 0 && bits % 16 == 0;
}

// Columns 4 quad .. of a row; zeros past its end. kWhole: see whole_quads; the quad is in the row.
template <bool kWhole = false>
__device__ __forceinline__ void load_quad(const float* row, uint32_t quad, uint32_t cols,
                                          float (&v)[4]) {
    if (kWhole || (quad * 4 + 4 <= cols && aligned_16(row + quad * 4))) {
        const float4 all = reinterpret_cast<const float4*>(row)[quad];
        v[0] = all.x, v[1] = all.y, v[2] = all.z, v[3] = all.w;
    } else {
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) v[i] = quad * 4 + i < cols ? row[quad * 4 + i] : 0.0f;
    }
}
template <bool kWhole = false>
__device__ __forceinline__ void load_quad(const __half* row, uint32_t quad, uint32_t cols,
                                          float (&v)[4]) {
    if (kWhole ||
        (quad * 4 + 4 <= cols && (reinterpret_cast<uintptr_t>(row + quad * 4) & 7) == 0)) {
        const uint2 words = reinterpret_cast<const uint2*>(row)[quad];
        const float2 low = __half22float2(*reinterpret_cast<const __half2*>(&words.x));
        const float2 high = __half22float2(*reinterpret_cast<const __half2*>(&words.y));
        v[0] = low.x, v[1] = low.y, v[2] = high.x, v[3] = high.y;
    } else {
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i)
            v[i] = quad * 4 + i < cols ? __half2float(row[quad * 4 + i]) : 0.0f;
    }
}
template <bool kWhole = false>
__device__ __forceinline__ void store_quad(float* row, uint32_t quad, uint32_t cols,
                                           const float (&v)[4]) {
    if (kWhole || (quad * 4 + 4 <= cols && aligned_16(row + quad * 4))) {
        reinterpret_cast<float4*>(row)[quad] = make_float4(v[0], v[1], v[2], v[3]);
    } else {
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i)
            if (quad * 4 + i < cols) row[quad * 4 + i] = v[i];
    }
}

// A norm's weights, which may be null: ones.
template <bool kWhole>
__device__ __forceinline__ void load_weights(const float* weight, uint32_t quad, uint32_t cols,
                                             float (&w)[4]) {
#pragma unroll
    for (float& value : w) value = 1;
    if (weight && quad * 4 < cols) load_quad<kWhole>(weight, quad, cols, w);
}

// The quad of a norm, to values and codes, of which either may be null; quads of what fills up the
// codes' last group come too.
template <bool kWhole>
__device__ __forceinline__ void store_norm(const float (&v)[4], const float (&w)[4], float factor,
                                           uint32_t quad, uint32_t cols, float* values,
                                           std::byte* codes) {
    float normed[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) normed[i] = quad * 4 + i < cols ? v[i] * factor * w[i] : 0.0f;
    if (values && quad * 4 < cols) store_quad<kWhole>(values, quad, cols, normed);
    if (codes) store_decode_codes(codes, quad, normed);
}

__device__ __forceinline__ float norm_factor(float squares, uint32_t cols, float eps) {
    return 1.0f / sqrtf(squares / static_cast<float>(cols) + eps);
}

}  // namespace
}  // namespace granary::gpu::cuda

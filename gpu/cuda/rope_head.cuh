// SPDX-License-Identifier: GPL-3.0-or-later
// What becomes of a head of q, k or v on its way into attention, by one warp: its norm, rotary
// positions and the rotation of KvPart::rotated; and how one goes to its cell (gpu/kv_format.h).
#pragma once

#include "gpu/cuda/rope.h"
#include "gpu/cuda/rows.cuh"

namespace granary::gpu::cuda {
namespace {

// Cosine and sine, of a pair that makes so many turns a cell. Angles are reduced in double: at
// 1,000,000 cells an f32 angle would be off by 0.06.
__device__ __forceinline__ float2 angle_of(double turns, uint32_t cell, float magnitude) {
    const double turn = __dmul_rn(turns, static_cast<double>(cell));
    float s, c;
    sincospif(static_cast<float>(2 * (turn - rint(turn))), &s, &c);
    return make_float2(__fmul_rn(magnitude, c), __fmul_rn(magnitude, s));
}

// ---- heads in shared memory: between steps that exchange values a warp synchronises

// The Walsh-Hadamard rotation, with the sums of gpu/host/kv_codes.cpp in the same order.
__device__ inline void rotate_head(float* x, uint32_t dim, uint32_t lane) {
    const uint32_t run = dim & (~dim + 1);
    const float scale = 1 / sqrtf(static_cast<float>(run));
    for (uint32_t i = lane; i < dim; i += 32) x[i] *= scale;
    for (uint32_t distance = 1; distance < run; distance *= 2) {
        __syncwarp();
        for (uint32_t i = lane; i < dim / 2; i += 32) {
            const uint32_t low = 2 * (i & ~(distance - 1)) + (i & (distance - 1));
            const float a = x[low], b = x[low + distance];
            x[low] = a + b;
            x[low + distance] = a - b;
        }
    }
    __syncwarp();
}

// Of positive floats larger bits are larger values, and NaN is the largest of all.
__device__ __forceinline__ uint32_t size_of(float value) {
    return __float_as_uint(value) & 0x7fffffffu;
}

__device__ __forceinline__ int code_of(float value, float scale, float limit) {
    return scale == 0 ? 0 : __float2int_rn(fminf(fmaxf(__fdiv_rn(value, scale), -limit), limit));
}

__device__ __forceinline__ __half scale_of(uint32_t largest, float limit) {
    return __float2half_rn(__fdiv_rn(__uint_as_float(largest), limit));
}

// Where a head of a cell lies.
struct Place {
    std::byte* codes;
    std::byte* scales;
};
__device__ __forceinline__ Place place_of_head(const KvView& kv, const KvPart& part,
                                               std::byte* base, uint32_t cell, uint32_t kv_heads,
                                               uint32_t head) {
    std::byte* const step = base + cell / kStepCells * kv.step_bytes;
    const uint32_t row = cell % kStepCells;
    return {step + part.code_offset + row * part.code_row + head * (part.code_row / kv_heads),
            step + part.scale_offset + row * part.scale_row + head * (part.scale_row / kv_heads)};
}

// A head of any size in shared memory to its place.
__device__ inline void store_head(KvCodes codes, const float* x, uint32_t dim, const Place& to,
                                  uint32_t lane) {
    if (codes == KvCodes::f16) {
        for (uint32_t i = lane; i < dim; i += 32)
            reinterpret_cast<__half*>(to.codes)[i] = __float2half_rn(x[i]);
        return;
    }
    if (codes == KvCodes::f32) {
        for (uint32_t i = lane; i < dim; i += 32) reinterpret_cast<float*>(to.codes)[i] = x[i];
        return;
    }
    const bool wide = codes == KvCodes::int8;
    const uint32_t group = wide ? 64 : 32;
    const float limit = wide ? 127.0f : 7.0f;
    for (uint32_t first = 0; first < dim; first += group) {
        const uint32_t count = min(group, dim - first);
        uint32_t largest = 0;
        for (uint32_t i = lane; i < count; i += 32) largest = max(largest, size_of(x[first + i]));
        const __half half = scale_of(warp_max(largest), limit);
        const float scale = __half2float(half);
        if (lane == 0) reinterpret_cast<__half*>(to.scales)[first / group] = half;
        const auto code = [&](uint32_t i) { return code_of(x[first + i], scale, limit); };
        if (wide) {
            for (uint32_t i = lane; i < count; i += 32)
                to.codes[first + i] = static_cast<std::byte>(code(i));
        } else if (lane < count / 2) {
            to.codes[first / 2 + lane] =
                static_cast<std::byte>((code(lane) & 15) | (code(count / 2 + lane) & 15) << 4);
        }
    }
}

// ---- heads of 32 kEach values in registers: lane l has values l, l + 32, ...

template <uint32_t kEach>
__device__ __forceinline__ void rotate_head(float (&v)[kEach], uint32_t lane) {
    const float scale = 1 / sqrtf(static_cast<float>(32 * kEach));
#pragma unroll
    for (uint32_t j = 0; j < kEach; ++j) v[j] *= scale;
#pragma unroll
    for (uint32_t distance = 1; distance < 32; distance *= 2)
#pragma unroll
        for (uint32_t j = 0; j < kEach; ++j) {
            const float other = __shfl_xor_sync(~0u, v[j], distance);
            v[j] = lane & distance ? other - v[j] : v[j] + other;
        }
#pragma unroll
    for (uint32_t distance = 1; distance < kEach; distance *= 2)
#pragma unroll
        for (uint32_t j = 0; j < kEach; ++j)
            if (!(j & distance)) {
                const float a = v[j], b = v[j + distance];
                v[j] = a + b;
                v[j + distance] = a - b;
            }
}

template <uint32_t kEach>
__device__ __forceinline__ void store_head(KvCodes codes, const float (&v)[kEach], const Place& to,
                                           uint32_t lane) {
    if (codes == KvCodes::f16) {
#pragma unroll
        for (uint32_t j = 0; j < kEach; ++j)
            reinterpret_cast<__half*>(to.codes)[lane + 32 * j] = __float2half_rn(v[j]);
    } else if (codes == KvCodes::f32) {
#pragma unroll
        for (uint32_t j = 0; j < kEach; ++j)
            reinterpret_cast<float*>(to.codes)[lane + 32 * j] = v[j];
    } else if (codes == KvCodes::int8) {
#pragma unroll
        for (uint32_t j = 0; j < kEach; j += 2) {
            const __half half = scale_of(warp_max(max(size_of(v[j]), size_of(v[j + 1]))), 127.0f);
            const float scale = __half2float(half);
            if (lane == 0) reinterpret_cast<__half*>(to.scales)[j / 2] = half;
#pragma unroll
            for (uint32_t i = 0; i < 2; ++i)
                to.codes[lane + 32 * (j + i)] =
                    static_cast<std::byte>(code_of(v[j + i], scale, 127.0f));
        }
    } else {
#pragma unroll
        for (uint32_t j = 0; j < kEach; ++j) {
            const __half half = scale_of(warp_max(size_of(v[j])), 7.0f);
            if (lane == 0) reinterpret_cast<__half*>(to.scales)[j] = half;
            const int code = code_of(v[j], __half2float(half), 7.0f) & 15;
            const int high = __shfl_down_sync(~0u, code, 16);
            if (lane < 16) to.codes[16 * j + lane] = static_cast<std::byte>(code | high << 4);
        }
    }
}

// The norm (weights null: none), then the turns of the first `pairs` pairs, 0, 32 or all, then the
// rotation. angle(j): cosine and sine of this lane's pair lane + 32 j.
template <uint32_t kEach, class Angle>
__device__ __forceinline__ void turn_head(float (&v)[kEach], const float* norm, float eps,
                                          uint32_t pairs, bool rotated, uint32_t lane,
                                          const Angle& angle) {
    if (norm) {
        float sum = 0;
#pragma unroll
        for (uint32_t j = 0; j < kEach; ++j) sum = fmaf(v[j], v[j], sum);
        const float factor = 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(32 * kEach) + eps);
#pragma unroll
        for (uint32_t j = 0; j < kEach; ++j) v[j] = v[j] * factor * norm[lane + 32 * j];
    }
    // Partners lie `apart` registers from each other.
    const auto turn = [&]<uint32_t kApart>() {
#pragma unroll
        for (uint32_t j = 0; j < kApart; ++j) {
            const float a = v[j], b = v[j + kApart];
            const float2 by = angle(j);
            v[j] = fmaf(-b, by.y, __fmul_rn(a, by.x));
            v[j + kApart] = fmaf(a, by.y, __fmul_rn(b, by.x));
        }
    };
    if (pairs == 16 * kEach)
        turn.template operator()<kEach / 2>();
    else if constexpr (kEach > 2)
        if (pairs == 32) turn.template operator()<1>();
    if (rotated) rotate_head(v, lane);
}

}  // namespace
}  // namespace granary::gpu::cuda

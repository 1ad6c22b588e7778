// SPDX-License-Identifier: GPL-3.0-or-later
// 32 activations to 8-bit codes (int8_rows.h), by one thread.
#pragma once

#include "gpu/cuda/int8_rows.h"
#include "gpu/cuda/portable.h"

namespace granary::gpu::cuda {

// An integer n of at most 22 bits and a sign as the bits of 1.5 * 2^23 + n: integer sums that start
// from these bits are f32 values without a conversion.
inline constexpr int32_t kRaisedBits = 0x4b400000;
inline constexpr float kRaised = 12582912.0f;

struct Int8Group {
    uint32_t coarse[8], fine[8];  // four codes each
    Int8Scale scale;
};

// rint(value[i] * inverse) and their sum; what they leave over stays in `value`.
__device__ __forceinline__ int32_t take_codes(float (&value)[32], float inverse, float scale,
                                              uint32_t (&codes)[8]) {
    int32_t sum = 0;
#pragma unroll
    for (uint32_t word = 0; word < 8; ++word) {
        uint32_t byte[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            float& of = value[4 * word + i];
            const float raised = __fadd_rn(__fmul_rn(of, inverse), kRaised);
            byte[i] = __float_as_uint(raised);
            of = fmaf(-__fsub_rn(raised, kRaised), scale, of);
        }
        codes[word] = __byte_perm(__byte_perm(byte[0], byte[1], 0x0040),
                                  __byte_perm(byte[2], byte[3], 0x0040), 0x5410);
        sum = __dp4a(static_cast<int>(codes[word]), 0x01010101, sum);
    }
    return sum;
}

template <bool kFine>
__device__ __forceinline__ Int8Group int8_group(float (&value)[32]) {
    float most = 0;
#pragma unroll
    for (const float each : value) most = fmaxf(most, fabsf(each));
    // Below this a quotient would leave f32.
    const float inverse = most > 1e-36f ? 127.0f / most : 0.0f;
    Int8Group out;
    const float scale = most * (1 / 127.0f);
    auto total = static_cast<float>(take_codes(value, inverse, scale, out.coarse));
    if constexpr (kFine)
        total += static_cast<float>(
                     take_codes(value, inverse * kFineSteps, scale / kFineSteps, out.fine)) *
                 (1 / kFineSteps);
    out.scale = {scale, scale * total};
    return out;
}

__device__ __forceinline__ void store_codes(std::byte* to, const uint32_t (&codes)[8]) {
    auto* const pieces = reinterpret_cast<uint4*>(to);
    pieces[0] = make_uint4(codes[0], codes[1], codes[2], codes[3]);
    pieces[1] = make_uint4(codes[4], codes[5], codes[6], codes[7]);
}
// As group `group` of a row of `cols` columns.
template <bool kFine>
__device__ __forceinline__ void store_group(std::byte* row, uint32_t cols, uint32_t group,
                                            const Int8Group& from) {
    std::byte* const to = row + group * (kFine ? 64 : 32);
    store_codes(to, from.coarse);
    if constexpr (kFine) store_codes(to + 32, from.fine);
    reinterpret_cast<Int8Scale*>(row + int8_code_bytes(cols, kFine))[group] = from.scale;
}

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Writes and reads the codes of decode_codes.h.
#pragma once

#include "gpu/cuda/decode_codes.h"

namespace granary::gpu::cuda {

// Columns kEach number .. of a row, kEach (4 or 8) a lane. The 32 / kEach lanes of a group, which
// begins at a lane that is a multiple of as many, call together.
template <uint32_t kEach>
__device__ __forceinline__ void store_decode_codes(std::byte* row, uint32_t number,
                                                   const float (&v)[kEach]) {
    constexpr uint32_t kLanes = 32 / kEach, kWords = kEach / 4;
    const uint32_t lane = threadIdx.x % 32, q = number % kLanes;
    const uint32_t mask = ((1u << kLanes) - 1) << (lane & ~(kLanes - 1));
    DecodeGroup& group = reinterpret_cast<DecodeGroup*>(row)[number / kLanes];
    float most = 0;
#pragma unroll
    for (const float value : v) most = fmaxf(most, fabsf(value));
#pragma unroll
    for (uint32_t distance = 1; distance < kLanes; distance *= 2)
        most = fmaxf(most, __shfl_xor_sync(mask, most, distance));
    const float by = most > 0 ? static_cast<float>(kDecodeMost) / most : 0.0f;
    uint32_t coarse[kWords] = {}, fine[kWords] = {};
    int sums = 0;  // of fine codes in the upper half
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) {
        const int all = __float2int_rn(v[i] * by), high = (all + 8) >> 4, low = all - high * 16;
        coarse[i / 4] |= (static_cast<uint32_t>(high) & 0xff) << (8 * (i % 4));
        fine[i / 4] |= (static_cast<uint32_t>(low) & 15) << (8 * (i % 4));
        sums += high + low * 65536;
    }
#pragma unroll
    for (uint32_t distance = 1; distance < kLanes; distance *= 2)
        sums += __shfl_xor_sync(mask, sums, distance);
#pragma unroll
    for (uint32_t i = 0; i < kWords; ++i) {
        reinterpret_cast<uint32_t*>(group.coarse)[q * kWords + i] = coarse[i];
        // Fine codes of the columns 16 further on take the upper nibbles.
        const uint32_t later = __shfl_xor_sync(mask, fine[i], kLanes / 2);
        if (q < kLanes / 2)
            reinterpret_cast<uint32_t*>(group.fine)[q * kWords + i] = fine[i] | later << 4;
    }
    if (q == kLanes / 2) {
        group.scale = most / 127;
    } else if (q == kLanes / 2 + 1) {
        group.coarse_sum = static_cast<int16_t>(sums);
        group.fine_sum = static_cast<int16_t>((sums - group.coarse_sum) >> 16);
    }
}

// A group in registers, as products take it: four codes a word, in the order of columns.
struct DecodeColumns {
    uint32_t coarse[8], fine[8];  // fine: 16 times what it is
    float scale, sum;             // sum: scale times that of the codes

    // kFine: both parts; scale is that of 256 coarse + fine then.
    template <bool kFine>
    __device__ __forceinline__ static DecodeColumns load(const DecodeGroup& group) {
        DecodeColumns out;
        const auto* const four = reinterpret_cast<const uint4*>(&group);
        const uint4 a = four[0], b = four[1];
        out.coarse[0] = a.x, out.coarse[1] = a.y, out.coarse[2] = a.z, out.coarse[3] = a.w;
        out.coarse[4] = b.x, out.coarse[5] = b.y, out.coarse[6] = b.z, out.coarse[7] = b.w;
        const uint2 rest = reinterpret_cast<const uint2*>(&group)[6];
        const float scale = __uint_as_float(rest.x);
        const auto coarse_sum = static_cast<int>(static_cast<int16_t>(rest.y));
        if constexpr (kFine) {
            const uint4 fine = four[2];
            const uint32_t words[4] = {fine.x, fine.y, fine.z, fine.w};
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) {
                out.fine[i] = words[i] << 4 & 0xf0f0f0f0;
                out.fine[4 + i] = words[i] & 0xf0f0f0f0;
            }
            const int fine_sum = static_cast<int>(rest.y) >> 16;
            out.scale = scale * (1.0f / 256);
            out.sum = scale * (1.0f / 16) * static_cast<float>(coarse_sum * 16 + fine_sum);
        } else {
            out.scale = scale;
            out.sum = scale * static_cast<float>(coarse_sum);
        }
        return out;
    }
    __device__ __forceinline__ static DecodeColumns zeros() {
        return {};
    }
};

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Writes and reads the codes of decode_codes.h.
#pragma once

#include "gpu/cuda/decode_codes.h"

namespace granary::gpu::cuda {

// Columns 8 octet .. 8 octet + 7 of a row. The four lanes of a group, which is four octets and
// begins at a lane that is a multiple of four, call together.
__device__ __forceinline__ void store_decode_codes(std::byte* row, uint32_t octet,
                                                   const float (&v)[8]) {
    const uint32_t lane = threadIdx.x % 32, q = octet % 4, mask = 0xfu << (lane & ~3u);
    DecodeGroup& group = reinterpret_cast<DecodeGroup*>(row)[octet / 4];
    float most = 0;
#pragma unroll
    for (const float value : v) most = fmaxf(most, fabsf(value));
    most = fmaxf(most, __shfl_xor_sync(mask, most, 1));
    most = fmaxf(most, __shfl_xor_sync(mask, most, 2));
    const float by = most > 0 ? static_cast<float>(kDecodeMost) / most : 0.0f;
    uint32_t coarse[2] = {}, fine[2] = {};
    int sums = 0;  // of fine codes in the upper half
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
        const int all = __float2int_rn(v[i] * by), high = (all + 8) >> 4, low = all - high * 16;
        coarse[i / 4] |= (static_cast<uint32_t>(high) & 0xff) << (8 * (i % 4));
        fine[i / 4] |= (static_cast<uint32_t>(low) & 15) << (8 * (i % 4));
        sums += high + low * 65536;
    }
    sums += __shfl_xor_sync(mask, sums, 1);
    sums += __shfl_xor_sync(mask, sums, 2);
    reinterpret_cast<uint2*>(group.coarse)[q] = make_uint2(coarse[0], coarse[1]);
    const uint32_t later[2] = {__shfl_xor_sync(mask, fine[0], 2),
                               __shfl_xor_sync(mask, fine[1], 2)};
    if (q < 2) {
        reinterpret_cast<uint2*>(group.fine)[q] =
            make_uint2(fine[0] | later[0] << 4, fine[1] | later[1] << 4);
    } else if (q == 2) {
        group.scale = most / 127;
    } else {
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

// SPDX-License-Identifier: GPL-3.0-or-later
// Quantised weights of decode steps, from raw blocks in shared memory to tensor-core operands: a
// warp takes 16 rows x 256 columns at a time, thread t of the four that share a row 64 of those
// columns, two groups of 32. In a product of 16 columns the four threads thus hold columns of four
// different groups, which a dot product does not mind as long as both factors do it: thread t holds
//
//   word q of piece (s, h), half i:  weight 8q + 4s + 2i + h of its group
//
// where the pieces are the four runs of 16 bytes of a group in a row of activations
// (ordered_rows.h) in their order.
#pragma once

#include "gpu/cuda/fragments.cuh"
#include "gpu/cuda/unpack.cuh"

namespace granary::gpu::cuda {

// f16 weights of one group: [q][s][h], two halves each.
struct GroupOperands {
    uint32_t value[4][2][2];
};

// kBytes bytes at any multiple of kAlign in shared memory, read by aligned pieces of kPiece (4 or
// 8) bytes: the smaller need less arithmetic, and 8 serve where lanes are whole multiples of 16
// bytes apart and smaller ones would meet in the same banks. Up to kPiece - kAlign bytes before and
// behind are read with them.
template <uint32_t kBytes, uint32_t kAlign, uint32_t kPiece = 4>
struct Unaligned {
    static constexpr bool kShifted = kAlign < 4;
    static constexpr uint32_t kWords = (kBytes + 3) / 4;
    static constexpr uint32_t kRead =
        kAlign >= kPiece ? kWords : (kBytes + kPiece - kAlign + kPiece - 1) / kPiece * (kPiece / 4);
    uint32_t word[kRead];
    uint32_t by;  // bytes in front

    __device__ __forceinline__ void load(const std::byte* from) {
        by = kAlign >= kPiece ? 0 : shared_address(from) % kPiece;
        if constexpr (kPiece == 8) {
            const auto* pieces = reinterpret_cast<const uint2*>(from - by);
#pragma unroll
            for (uint32_t i = 0; i < kRead / 2; ++i) {
                const uint2 piece = pieces[i];
                word[2 * i] = piece.x, word[2 * i + 1] = piece.y;
            }
        } else {
            const auto* pieces = reinterpret_cast<const uint32_t*>(from - by);
#pragma unroll
            for (uint32_t i = 0; i < kRead; ++i) word[i] = pieces[i];
        }
    }
    __device__ __forceinline__ void words(uint32_t (&out)[kWords]) const {
        uint32_t all[kWords + 1];
#pragma unroll
        for (uint32_t i = 0; i <= kWords; ++i) {
            const uint32_t here = i < kRead ? word[i] : 0, next = i + 1 < kRead ? word[i + 1] : 0;
            all[i] = kPiece == 8 && by & 4 ? next : here;
        }
#pragma unroll
        for (uint32_t i = 0; i < kWords; ++i)
            out[i] = kShifted ? __funnelshift_r(all[i], all[i + 1], by % 4 * 8) : all[i];
    }
};

// weight = scale * (code - kOffset) - minimum, with code[k] the bytes of weights 4k .. 4k + 3.
template <uint32_t kOffset>
__device__ __forceinline__ GroupOperands widen_group(const uint32_t (&code)[8], float scale_low,
                                                     float scale_high, float minimum = 0) {
    const __half2 zero = as_half2(0x64006400 + kOffset * 0x10001u);  // 1024 + kOffset
    const __half2 less = both_halves(__float2half_rn(-minimum));
    GroupOperands out;
#pragma unroll
    for (uint32_t q = 0; q < 4; ++q) {
        const __half2 scale = both_halves(__float2half_rn(q < 2 ? scale_low : scale_high));
#pragma unroll
        for (uint32_t s = 0; s < 2; ++s)
#pragma unroll
            for (uint32_t h = 0; h < 2; ++h) {
                const uint32_t raised =
                    __byte_perm(code[2 * q + s], 0x64646464, h ? 0x4341 : 0x4240);
                out.value[q][s][h] = bits(__hfma2(__hsub2(as_half2(raised), zero), scale, less));
            }
    }
    return out;
}

__device__ __forceinline__ float low_half(uint32_t word) {
    return __half2float(__ushort_as_half(static_cast<uint16_t>(word)));
}
__device__ __forceinline__ float high_half(uint32_t word) {
    return low_half(word >> 16);
}
// 16 bytes of nibbles, word by word, as the codes of 32 weights.
__device__ __forceinline__ void nibble_codes(const uint32_t (&from)[4], uint32_t (&code)[8]) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        code[i] = from[i] & 0x0f0f0f0f;
        code[4 + i] = from[i] >> 4 & 0x0f0f0f0f;
    }
}
// Word kFrom / 4 of `words` on, kCount of them, where kFrom is any byte.
template <uint32_t kFrom, uint32_t kCount, uint32_t kWords>
__device__ __forceinline__ void words_at(const uint32_t (&words)[kWords], uint32_t (&out)[kCount]) {
#pragma unroll
    for (uint32_t i = 0; i < kCount; ++i) {
        constexpr uint32_t kBy = kFrom % 4 * 8;
        const uint32_t at = kFrom / 4 + i;
        out[i] =
            kBy ? __funnelshift_r(words[at], at + 1 < kWords ? words[at + 1] : 0, kBy) : words[at];
    }
}

// Of a type: kStaged, whether chunks of 256 columns come through shared memory; Raw, what thread t
// reads of a row for its j-th group (0, 1); group(t, j), which of the eight groups that is;
// widen(raw, t, j).
template <WeightType kType>
struct LaneGroups;

// Blocks of 32 weights: one group of a thread after the other.
template <uint32_t kBytes, uint32_t kAlign>
struct BlocksOf32 {
    static constexpr bool kStaged = true;
    static constexpr uint32_t kChunkBytes = 8 * kBytes;
    using Raw = Unaligned<kBytes, kAlign>;
    __device__ static uint32_t group(uint32_t t, uint32_t j) { return 2 * t + j; }
    __device__ static Raw load(const std::byte* chunk, uint32_t t, uint32_t j) {
        Raw raw;
        raw.load(chunk + (2 * t + j) * kBytes);
        return raw;
    }
};

template <>
struct LaneGroups<WeightType::q8_0> : BlocksOf32<34, 2> {
    __device__ static GroupOperands widen(const Raw& raw, uint32_t, uint32_t) {
        uint32_t words[9], code[8];
        raw.words(words);
        words_at<2>(words, code);
#pragma unroll
        for (uint32_t& word : code) word ^= 0x80808080u;
        const float scale = low_half(words[0]);
        return widen_group<128>(code, scale, scale);
    }
};
template <>
struct LaneGroups<WeightType::q4_0> : BlocksOf32<18, 2> {
    __device__ static GroupOperands widen(const Raw& raw, uint32_t, uint32_t) {
        uint32_t words[5], nibbles[4], code[8];
        raw.words(words);
        words_at<2>(words, nibbles);
        nibble_codes(nibbles, code);
        const float scale = low_half(words[0]);
        return widen_group<8>(code, scale, scale);
    }
};
template <>
struct LaneGroups<WeightType::iq4_nl> : BlocksOf32<18, 2> {
    __device__ static GroupOperands widen(const Raw& raw, uint32_t, uint32_t) {
        uint32_t words[5], nibbles[4], code[8];
        raw.words(words);
        words_at<2>(words, nibbles);
        nibble_codes(nibbles, code);
#pragma unroll
        for (uint32_t& word : code) word = unpack::looked_up<unpack::kNonlinearTable>(word);
        const float scale = low_half(words[0]);
        return widen_group<128>(code, scale, scale);
    }
};
template <>
struct LaneGroups<WeightType::mxfp4> : BlocksOf32<17, 1> {
    __device__ static GroupOperands widen(const Raw& raw, uint32_t, uint32_t) {
        uint32_t words[5], nibbles[4], code[8];
        raw.words(words);
        words_at<1>(words, nibbles);
        nibble_codes(nibbles, code);
#pragma unroll
        for (uint32_t& word : code) word = unpack::looked_up<unpack::kMxfp4Table>(word);
        const float scale = unpack::mxfp4_scale(words[0] & 0xff);
        return widen_group<16>(code, scale, scale);
    }
};
template <>
struct LaneGroups<WeightType::q5_0> : BlocksOf32<22, 2> {
    __device__ static GroupOperands widen(const Raw& raw, uint32_t, uint32_t) {
        uint32_t words[6], fifth[1], nibbles[4], code[8];
        raw.words(words);
        words_at<2>(words, fifth);
        words_at<6>(words, nibbles);
        nibble_codes(nibbles, code);
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) code[i] |= unpack::spread_bits(fifth[0] >> 4 * i) << 4;
        const float scale = low_half(words[0]);
        return widen_group<16>(code, scale, scale);
    }
};
template <>
struct LaneGroups<WeightType::q5_1> : BlocksOf32<24, 8> {
    __device__ static GroupOperands widen(const Raw& raw, uint32_t, uint32_t) {
        uint32_t words[6], nibbles[4], code[8];
        raw.words(words);
        words_at<8>(words, nibbles);
        nibble_codes(nibbles, code);
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) code[i] |= unpack::spread_bits(words[1] >> 4 * i) << 4;
        const float scale = low_half(words[0]);
        return widen_group<0>(code, scale, scale, -high_half(words[0]));
    }
};

// Blocks of 256 weights: what a thread loads serves both of its groups.
struct BlocksOf256 {
    static constexpr bool kStaged = true;
};

// 6-bit scale and minimum `group` of Q4_K and Q5_K, from the block's first 16 bytes.
__device__ __forceinline__ float2 scale_and_minimum(const uint4& head, uint32_t group) {
    // Without branches: lanes differ in their group.
    const uint32_t by = group % 4 * 8;
    const uint32_t y = head.y >> by, z = head.z >> by, w = head.w >> by;
    const bool late = group >= 4;
    const uint32_t scale = late ? (w & 15) | (y >> 2 & 0x30) : y & 63;
    const uint32_t minimum = late ? (w >> 4 & 15) | (z >> 2 & 0x30) : z & 63;
    return {low_half(head.x) * static_cast<float>(scale),
            high_half(head.x) * static_cast<float>(minimum)};
}

template <>
struct LaneGroups<WeightType::q4_k> : BlocksOf256 {
    static constexpr uint32_t kChunkBytes = 144;
    struct Raw {
        uint4 head, codes[2];
    };
    __device__ static uint32_t group(uint32_t t, uint32_t j) { return 2 * t + j; }
    __device__ static Raw load(const std::byte* chunk, uint32_t t, uint32_t) {
        const auto* at = reinterpret_cast<const uint4*>(chunk);
        return {at[0], {at[1 + 2 * t], at[2 + 2 * t]}};
    }
    __device__ static GroupOperands widen(const Raw& raw, uint32_t t, uint32_t j) {
        const auto* words = reinterpret_cast<const uint32_t*>(raw.codes);
        const float2 pair = scale_and_minimum(raw.head, 2 * t + j);
        const __half2 scale = both_halves(__float2half_rn(pair.x));
        const __half2 less = both_halves(__float2half_rn(-pair.y));
        GroupOperands out;
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i)
#pragma unroll
            for (uint32_t h = 0; h < 2; ++h) {
                // 1024 + n, less 1024; or 1024 + 16 n, times 1/16, less 64.
                const uint32_t word = words[i] >> 8 * h;
                const __half2 code = j ? __hfma2(as_half2(and_or<0x00f000f0, 0x64006400>(word)),
                                                 as_half2(0x2c002c00), as_half2(0xd400d400))
                                       : __hsub2(as_half2(and_or<0x000f000f, 0x64006400>(word)),
                                                 as_half2(0x64006400));
                out.value[i / 2][i % 2][h] = bits(__hfma2(code, scale, less));
            }
        return out;
    }
};
template <>
struct LaneGroups<WeightType::q5_k> : BlocksOf256 {
    static constexpr uint32_t kChunkBytes = 176;
    struct Raw {
        uint4 head, fifth[2], codes[2];
    };
    __device__ static uint32_t group(uint32_t t, uint32_t j) { return 2 * t + j; }
    __device__ static Raw load(const std::byte* chunk, uint32_t t, uint32_t) {
        const auto* at = reinterpret_cast<const uint4*>(chunk);
        return {at[0], {at[1], at[2]}, {at[3 + 2 * t], at[4 + 2 * t]}};
    }
    __device__ static GroupOperands widen(const Raw& raw, uint32_t t, uint32_t j) {
        const auto* words = reinterpret_cast<const uint32_t*>(raw.codes);
        const auto* fifth = reinterpret_cast<const uint32_t*>(raw.fifth);
        uint32_t code[8];
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i)
            code[i] = (words[i] >> 4 * j & 0x0f0f0f0f) | (fifth[i] >> (2 * t + j) & 0x01010101)
                                                             << 4;
        const float2 pair = scale_and_minimum(raw.head, 2 * t + j);
        return widen_group<0>(code, pair.x, pair.x, pair.y);
    }
};
// Thread t: the low and the high nibbles of 32 bytes, and two pairs of the bits above.
template <>
struct LaneGroups<WeightType::q6_k> : BlocksOf256 {
    static constexpr uint32_t kChunkBytes = 210;
    struct Raw {
        Unaligned<32, 2, 8> low, high;
        uint32_t scales, d;  // four signed bytes; f16
    };
    __device__ static uint32_t group(uint32_t t, uint32_t j) { return t / 2 * 4 + t % 2 + 2 * j; }
    __device__ static Raw load(const std::byte* chunk, uint32_t t, uint32_t) {
        Raw raw;
        raw.low.load(chunk + 32 * t);
        raw.high.load(chunk + 128 + t / 2 * 32);
        const auto* pairs = reinterpret_cast<const uint16_t*>(chunk + 192);
        raw.scales = pairs[group(t, 0)] | static_cast<uint32_t>(pairs[group(t, 1)]) << 16;
        raw.d = pairs[8];
        return raw;
    }
    __device__ static GroupOperands widen(const Raw& raw, uint32_t t, uint32_t j) {
        uint32_t low[8], high[8], code[8];
        raw.low.words(low);
        raw.high.words(high);
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i)
            code[i] = (low[i] >> 4 * j & 0x0f0f0f0f) | (high[i] >> (t % 2 * 2 + 4 * j) & 0x03030303)
                                                           << 4;
        const float d = low_half(raw.d);
        return widen_group<32>(
            code, d * static_cast<float>(static_cast<int8_t>(raw.scales >> 16 * j)),
            d * static_cast<float>(static_cast<int8_t>(raw.scales >> (16 * j + 8))));
    }
};
template <>
struct LaneGroups<WeightType::iq4_xs> : BlocksOf256 {
    static constexpr uint32_t kChunkBytes = 136;
    struct Raw {
        uint2 head, codes[4];
    };
    __device__ static uint32_t group(uint32_t t, uint32_t j) { return 2 * t + j; }
    __device__ static Raw load(const std::byte* chunk, uint32_t t, uint32_t) {
        const auto* at = reinterpret_cast<const uint2*>(chunk);
        Raw raw{at[0], {}};
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) raw.codes[i] = at[1 + 4 * t + i];
        return raw;
    }
    __device__ static GroupOperands widen(const Raw& raw, uint32_t t, uint32_t j) {
        const uint2 first = j ? raw.codes[2] : raw.codes[0];
        const uint2 second = j ? raw.codes[3] : raw.codes[1];
        const uint32_t nibbles[4] = {first.x, first.y, second.x, second.y};
        uint32_t code[8];
        nibble_codes(nibbles, code);
#pragma unroll
        for (uint32_t& word : code) word = unpack::looked_up<unpack::kNonlinearTable>(word);
        const uint32_t low = raw.head.y >> (8 * t + 4 * j) & 15;
        const uint32_t high = raw.head.x >> 16 >> (4 * t + 2 * j) & 3;
        const float scale =
            low_half(raw.head.x) * static_cast<float>(static_cast<int>(low | high << 4) - 32);
        return widen_group<128>(code, scale, scale);
    }
};

// 16-bit floats: a group is 64 bytes, read where it lies.
struct HalfGroups {
    static constexpr bool kStaged = false;
    static constexpr uint32_t kChunkBytes = 512;
    struct Raw {
        uint4 octet[4];
    };
    __device__ static uint32_t group(uint32_t t, uint32_t j) { return 4 * j + t; }
    __device__ static Raw load(const std::byte* chunk, uint32_t t, uint32_t j) {
        const auto* at = reinterpret_cast<const uint4*>(chunk + group(t, j) * 64);
        return {{__ldg(at), __ldg(at + 1), __ldg(at + 2), __ldg(at + 3)}};
    }
};
template <>
struct LaneGroups<WeightType::f16> : HalfGroups {
    __device__ static GroupOperands widen(const Raw& raw, uint32_t, uint32_t) {
        const auto* words = reinterpret_cast<const uint32_t*>(raw.octet);
        GroupOperands out;
#pragma unroll
        for (uint32_t i = 0; i < 16; ++i) {
            const uint32_t pair = i / 4 * 4 + i / 2 % 2 * 2;  // [q][s][h]
            out.value[i / 4][i / 2 % 2][i % 2] =
                __byte_perm(words[pair], words[pair + 1], i % 2 ? 0x7632 : 0x5410);
        }
        return out;
    }
};
template <>
struct LaneGroups<WeightType::bf16> : HalfGroups {
    __device__ static GroupOperands widen(const Raw& raw, uint32_t, uint32_t) {
        const auto* words = reinterpret_cast<const uint32_t*>(raw.octet);
        GroupOperands out;
#pragma unroll
        for (uint32_t i = 0; i < 16; ++i) {
            const uint32_t pair = i / 4 * 4 + i / 2 % 2 * 2;
            const uint32_t one = words[pair], two = words[pair + 1];
            out.value[i / 4][i / 2 % 2][i % 2] =
                pack_half2(__uint_as_float(i % 2 ? one & 0xffff0000u : one << 16),
                           __uint_as_float(i % 2 ? two & 0xffff0000u : two << 16));
        }
        return out;
    }
};

}  // namespace granary::gpu::cuda

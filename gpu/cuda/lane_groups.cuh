// SPDX-License-Identifier: GPL-3.0-or-later
// Quantised weights of decode steps, from raw blocks in shared memory to bytes that integer dot
// products (dp4a) take: a warp has 16 rows x 256 columns at a time, thread t of the four that share
// a row 64 of those columns, two groups of 32. Codes are shifted and masked to where they can stand
// in a byte rather than to the lowest bits: a factor that is a power of two goes to the scale, and
// an offset becomes a sign bit turned over.
#pragma once

#include "gpu/cuda/mma.cuh"
#include "gpu/cuda/unpack.cuh"

namespace granary::gpu::cuda {

// Of one group: weight k = scale[k / 16] * code k - minimum. The second scale and the minimum are
// there where the type has them.
struct GroupScales {
    float scale[2];
    float minimum;
};

// What codes of a type are like.
struct CodeKind {
    bool is_unsigned = false, two_scales = false, minimum = false;
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
    // kCount words from byte kFrom on, where pieces are words.
    template <uint32_t kFrom, uint32_t kCount>
    __device__ __forceinline__ void words_at(uint32_t (&out)[kCount]) const {
        static_assert(kPiece == 4 && kFrom / 4 + kCount <= kRead);
#pragma unroll
        for (uint32_t i = 0; i < kCount; ++i) {
            const uint32_t at = kFrom / 4 + i;
            // By four bytes at most: clamped, so that the whole next word is one of the cases.
            out[i] = kShifted || kFrom % 4
                         ? __funnelshift_rc(word[at], at + 1 < kRead ? word[at + 1] : 0,
                                            (by + kFrom % 4) * 8)
                         : word[at];
        }
    }
    // The word at `from`'s own bytes, as far as they are in the first piece.
    __device__ __forceinline__ uint32_t first() const {
        return word[0] >> by * 8;
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

__device__ __forceinline__ float low_half(uint32_t word) {
    return __half2float(__ushort_as_half(static_cast<uint16_t>(word)));
}
__device__ __forceinline__ float high_half(uint32_t word) {
    return low_half(word >> 16);
}
// (a & kA) | (b & kB), all of it ^ kTurned.
template <uint32_t kA, uint32_t kB, uint32_t kTurned = 0>
__device__ __forceinline__ uint32_t merged(uint32_t a, uint32_t b) {
    static_assert((kA & kB) == 0);
    return (a & kA) | ((b & kB) ^ kTurned);
}

// Of a type: kKind; kChunkBytes of 256 columns; kWhole, whether rows are whole chunks; group(t, j),
// which of the eight groups is thread t's j-th (0, 1); Raw, what it reads of a row for both;
// scales(raw, t, of both), codes(raw, t, j, four a word in the order of columns).
template <WeightType kType>
struct LaneGroups;

// Blocks of 32 weights: one group of a thread after the other.
template <uint32_t kBytes, uint32_t kAlign>
struct BlocksOf32 {
    static constexpr uint32_t kChunkBytes = 8 * kBytes;
    static constexpr bool kWhole = false;
    using Block = Unaligned<kBytes, kAlign>;
    struct Raw {
        Block block[2];
    };
    __device__ static uint32_t group(uint32_t t, uint32_t j) { return 2 * t + j; }
    __device__ static Raw load(const std::byte* chunk, uint32_t t) {
        Raw raw;
        raw.block[0].load(chunk + 2 * t * kBytes);
        raw.block[1].load(chunk + (2 * t + 1) * kBytes);
        return raw;
    }
};

template <>
struct LaneGroups<WeightType::q8_0> : BlocksOf32<34, 2> {
    static constexpr CodeKind kKind{};
    __device__ static void scales(const Raw& raw, uint32_t, GroupScales (&out)[2]) {
#pragma unroll
        for (uint32_t j = 0; j < 2; ++j) out[j].scale[0] = low_half(raw.block[j].first());
    }
    __device__ static void codes(const Raw& raw, uint32_t, uint32_t j, uint32_t (&code)[8]) {
        const Block& block = raw.block[j];
        block.words_at<2>(code);
    }
};
// 16 (code - 8)
template <>
struct LaneGroups<WeightType::q4_0> : BlocksOf32<18, 2> {
    static constexpr CodeKind kKind{};
    __device__ static void scales(const Raw& raw, uint32_t, GroupScales (&out)[2]) {
#pragma unroll
        for (uint32_t j = 0; j < 2; ++j)
            out[j].scale[0] = low_half(raw.block[j].first()) * (1.0f / 16);
    }
    __device__ static void codes(const Raw& raw, uint32_t, uint32_t j, uint32_t (&code)[8]) {
        const Block& block = raw.block[j];
        uint32_t nibbles[4];
        block.words_at<2>(nibbles);
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            code[i] = (nibbles[i] << 4 & 0xf0f0f0f0) ^ 0x80808080;
            code[4 + i] = (nibbles[i] & 0xf0f0f0f0) ^ 0x80808080;
        }
    }
};
// Of four words of nibbles, the entries of a table of 16 signed bytes.
template <unpack::ByteTable kTable>
__device__ __forceinline__ void look_up(const uint32_t (&nibbles)[4], uint32_t (&code)[8]) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        uint32_t pair[2];  // entries of the low and high nibbles in turn
        // Of each nibble, which of the two halves of the table: byte 0 to 3, or 4 to 7.
        const uint32_t half = merged<0x44444444, 0x33333333>(nibbles[i] >> 1, 0x32103210);
#pragma unroll
        for (uint32_t k = 0; k < 2; ++k) {
            const uint32_t at = (nibbles[i] & 0x77777777) >> 16 * k;
            pair[k] = __byte_perm(__byte_perm(kTable.word[0], kTable.word[1], at),
                                  __byte_perm(kTable.word[2], kTable.word[3], at), half >> 16 * k);
        }
        code[i] = __byte_perm(pair[0], pair[1], 0x6420);
        code[4 + i] = __byte_perm(pair[0], pair[1], 0x7531);
    }
}
inline constexpr unpack::ByteTable kSignedNonlinear{
    {0xbfad9881, 0xf6eaddcf, 0x26190d01, 0x71594535}};
inline constexpr unpack::ByteTable kSignedMxfp4{{0x03020100, 0x0c080604, 0xfdfeff00, 0xf4f8fafc}};
template <>
struct LaneGroups<WeightType::iq4_nl> : BlocksOf32<18, 2> {
    static constexpr CodeKind kKind{};
    __device__ static void scales(const Raw& raw, uint32_t, GroupScales (&out)[2]) {
#pragma unroll
        for (uint32_t j = 0; j < 2; ++j) out[j].scale[0] = low_half(raw.block[j].first());
    }
    __device__ static void codes(const Raw& raw, uint32_t, uint32_t j, uint32_t (&code)[8]) {
        const Block& block = raw.block[j];
        uint32_t nibbles[4];
        block.words_at<2>(nibbles);
        look_up<kSignedNonlinear>(nibbles, code);
    }
};
template <>
struct LaneGroups<WeightType::mxfp4> : BlocksOf32<17, 1> {
    static constexpr CodeKind kKind{};
    __device__ static void scales(const Raw& raw, uint32_t, GroupScales (&out)[2]) {
#pragma unroll
        for (uint32_t j = 0; j < 2; ++j)
            out[j].scale[0] = unpack::mxfp4_scale(raw.block[j].first() & 0xff);
    }
    __device__ static void codes(const Raw& raw, uint32_t, uint32_t j, uint32_t (&code)[8]) {
        const Block& block = raw.block[j];
        uint32_t nibbles[4];
        block.words_at<1>(nibbles);
        look_up<kSignedMxfp4>(nibbles, code);
    }
};
// The fifth bits of four weights, to the highest bits of their bytes.
__device__ __forceinline__ uint32_t top_bits(uint32_t four) {
    return (four & 15) * 0x10204080u;
}
// 8 (code - 16)
template <>
struct LaneGroups<WeightType::q5_0> : BlocksOf32<22, 2> {
    static constexpr CodeKind kKind{};
    __device__ static void scales(const Raw& raw, uint32_t, GroupScales (&out)[2]) {
#pragma unroll
        for (uint32_t j = 0; j < 2; ++j)
            out[j].scale[0] = low_half(raw.block[j].first()) * (1.0f / 8);
    }
    __device__ static void codes(const Raw& raw, uint32_t, uint32_t j, uint32_t (&code)[8]) {
        const Block& block = raw.block[j];
        uint32_t fifth[1], nibbles[4];
        block.words_at<2>(fifth);
        block.words_at<6>(nibbles);
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i)
            code[i] = merged<0x78787878, 0x80808080, 0x80808080>(
                i < 4 ? nibbles[i] << 3 : nibbles[i - 4] >> 1, top_bits(fifth[0] >> 4 * i));
    }
};
// 8 code
template <>
struct LaneGroups<WeightType::q5_1> : BlocksOf32<24, 8> {
    static constexpr CodeKind kKind{.is_unsigned = true, .minimum = true};
    __device__ static void scales(const Raw& raw, uint32_t, GroupScales (&out)[2]) {
#pragma unroll
        for (uint32_t j = 0; j < 2; ++j) {
            const uint32_t both = raw.block[j].word[0];
            out[j].scale[0] = low_half(both) * (1.0f / 8);
            out[j].minimum = -high_half(both);
        }
    }
    __device__ static void codes(const Raw& raw, uint32_t, uint32_t j, uint32_t (&code)[8]) {
        const Block& block = raw.block[j];
        const uint32_t(&words)[6] = block.word;
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i)
            code[i] = merged<0x78787878, 0x80808080>(i < 4 ? words[2 + i] << 3 : words[i - 2] >> 1,
                                                     top_bits(words[1] >> 4 * i));
    }
};

// Blocks of 256 weights: what a thread loads serves both of its groups.

// Thread t's 6-bit scales and minimums of Q4_K and Q5_K, from the block's first 16 bytes, times
// what codes want: of groups 2t and 2t + 1, which are neighbours in every word.
__device__ __forceinline__ void scales_and_minimums(const uint4& head, uint32_t t, float first,
                                                    float second, GroupScales (&out)[2]) {
    // Without branches: lanes differ in their groups.
    const bool late = t >= 2;
    const uint32_t by = t % 2 * 16, low = late ? 0x0f0f : 0x3f3f, high = late ? 0x3030 : 0;
    const uint32_t y = head.y >> by, z = head.z >> by, w = head.w >> by;
    const uint32_t scales = ((late ? w : y) & low) | (y >> 2 & high);
    const uint32_t minimums = ((late ? w >> 4 : z) & low) | (z >> 2 & high);
    const float d = low_half(head.x), m = high_half(head.x);
    out[0].scale[0] = d * first * static_cast<float>(scales & 0xff);
    out[1].scale[0] = d * second * static_cast<float>(scales >> 8 & 0xff);
    out[0].minimum = m * static_cast<float>(minimums & 0xff);
    out[1].minimum = m * static_cast<float>(minimums >> 8 & 0xff);
}

// The second group's codes are 16 times what they are.
template <>
struct LaneGroups<WeightType::q4_k> {
    static constexpr CodeKind kKind{.is_unsigned = true, .minimum = true};
    static constexpr uint32_t kChunkBytes = 144;
    static constexpr bool kWhole = true;
    struct Raw {
        uint4 head, codes[2];
    };
    __device__ static uint32_t group(uint32_t t, uint32_t j) { return 2 * t + j; }
    __device__ static Raw load(const std::byte* chunk, uint32_t t) {
        const auto* at = reinterpret_cast<const uint4*>(chunk);
        return {at[0], {at[1 + 2 * t], at[2 + 2 * t]}};
    }
    __device__ static void scales(const Raw& raw, uint32_t t, GroupScales (&out)[2]) {
        scales_and_minimums(raw.head, t, 1, 1.0f / 16, out);
    }
    __device__ static void codes(const Raw& raw, uint32_t, uint32_t j, uint32_t (&code)[8]) {
        const uint32_t words[8] = {raw.codes[0].x, raw.codes[0].y, raw.codes[0].z, raw.codes[0].w,
                                   raw.codes[1].x, raw.codes[1].y, raw.codes[1].z, raw.codes[1].w};
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) code[i] = words[i] & (j ? 0xf0f0f0f0 : 0x0f0f0f0f);
    }
};
// 8 code
template <>
struct LaneGroups<WeightType::q5_k> {
    static constexpr CodeKind kKind{.is_unsigned = true, .minimum = true};
    static constexpr uint32_t kChunkBytes = 176;
    static constexpr bool kWhole = true;
    struct Raw {
        uint4 head, fifth[2], codes[2];
    };
    __device__ static uint32_t group(uint32_t t, uint32_t j) { return 2 * t + j; }
    __device__ static Raw load(const std::byte* chunk, uint32_t t) {
        const auto* at = reinterpret_cast<const uint4*>(chunk);
        return {at[0], {at[1], at[2]}, {at[3 + 2 * t], at[4 + 2 * t]}};
    }
    __device__ static void scales(const Raw& raw, uint32_t t, GroupScales (&out)[2]) {
        scales_and_minimums(raw.head, t, 1.0f / 8, 1.0f / 8, out);
    }
    __device__ static void codes(const Raw& raw, uint32_t t, uint32_t j, uint32_t (&code)[8]) {
        const uint32_t words[8] = {raw.codes[0].x, raw.codes[0].y, raw.codes[0].z, raw.codes[0].w,
                                   raw.codes[1].x, raw.codes[1].y, raw.codes[1].z, raw.codes[1].w};
        const uint32_t fifth[8] = {raw.fifth[0].x, raw.fifth[0].y, raw.fifth[0].z, raw.fifth[0].w,
                                   raw.fifth[1].x, raw.fifth[1].y, raw.fifth[1].z, raw.fifth[1].w};
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i)
            code[i] = merged<0x78787878, 0x80808080>(j ? words[i] >> 1 : words[i] << 3,
                                                     fifth[i] << (7 - (2 * t + j)));
    }
};
// Thread t: the low and the high nibbles of 32 bytes, and two pairs of the bits above. 4 (code -
// 32).
template <>
struct LaneGroups<WeightType::q6_k> {
    static constexpr CodeKind kKind{.two_scales = true};
    static constexpr uint32_t kChunkBytes = 210;
    static constexpr bool kWhole = true;
    struct Raw {
        Unaligned<32, 2, 8> low, high;
        uint32_t scales, d;  // four signed bytes; f16
    };
    __device__ static uint32_t group(uint32_t t, uint32_t j) { return t / 2 * 4 + t % 2 + 2 * j; }
    __device__ static Raw load(const std::byte* chunk, uint32_t t) {
        Raw raw;
        raw.low.load(chunk + 32 * t);
        raw.high.load(chunk + 128 + t / 2 * 32);
        const auto* pairs = reinterpret_cast<const uint16_t*>(chunk + 192);
        raw.scales = pairs[group(t, 0)] | static_cast<uint32_t>(pairs[group(t, 1)]) << 16;
        raw.d = pairs[8];
        return raw;
    }
    __device__ static void scales(const Raw& raw, uint32_t, GroupScales (&out)[2]) {
        const float d = low_half(raw.d) * (1.0f / 4);
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i)
            out[i / 2].scale[i % 2] =
                d * static_cast<float>(static_cast<int8_t>(raw.scales >> 8 * i));
    }
    __device__ static void codes(const Raw& raw, uint32_t t, uint32_t j, uint32_t (&code)[8]) {
        uint32_t low[8], high[8];
        raw.low.words(low);
        raw.high.words(high);
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i)
            code[i] = merged<0x3c3c3c3c, 0xc0c0c0c0, 0x80808080>(
                j ? low[i] >> 2 : low[i] << 2, high[i] << (6 - (t % 2 * 2 + 4 * j)));
    }
};
template <>
struct LaneGroups<WeightType::iq4_xs> {
    static constexpr CodeKind kKind{};
    static constexpr uint32_t kChunkBytes = 136;
    static constexpr bool kWhole = true;
    struct Raw {
        uint2 head, codes[4];
    };
    __device__ static uint32_t group(uint32_t t, uint32_t j) { return 2 * t + j; }
    __device__ static Raw load(const std::byte* chunk, uint32_t t) {
        const auto* at = reinterpret_cast<const uint2*>(chunk);
        Raw raw{at[0], {}};
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) raw.codes[i] = at[1 + 4 * t + i];
        return raw;
    }
    __device__ static void scales(const Raw& raw, uint32_t t, GroupScales (&out)[2]) {
        const float d = low_half(raw.head.x);
#pragma unroll
        for (uint32_t j = 0; j < 2; ++j) {
            const uint32_t low = raw.head.y >> (8 * t + 4 * j) & 15;
            const uint32_t high = raw.head.x >> 16 >> (4 * t + 2 * j) & 3;
            out[j].scale[0] = d * static_cast<float>(static_cast<int>(low | high << 4) - 32);
        }
    }
    __device__ static void codes(const Raw& raw, uint32_t, uint32_t j, uint32_t (&code)[8]) {
        const uint2 first = raw.codes[2 * j], second = raw.codes[2 * j + 1];
        const uint32_t nibbles[4] = {first.x, first.y, second.x, second.y};
        look_up<kSignedNonlinear>(nibbles, code);
    }
};

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Quantised weights as signed bytes for tensor-core products of integers: of each 32 columns a
// thread has 4t .. 4t + 3 and 16 + 4t .. 16 + 4t + 3 of a row. A piece is the row's share of what
// prompt_format brings to shared memory at a time, `group` the number of the 32 in it.
#pragma once

#include "gpu/cuda/unpack.cuh"

namespace granary::gpu::cuda {

// kMinimum: weight = x * code - y, with {x, y} the group's Scales; kHalves: x * code for the first
// 16 columns, y * code for the others; else x * code. kSpread: spread() gives the scales of groups
// 4 half .. 4 half + 3 from the piece's header, else scales() those of one group.
template <WeightType kType>
struct Int8Weights;

// At `at`, an even number of bytes, from a multiple of 16 in shared memory.
struct RawPiece {
    const std::byte* base;
    uint32_t at;
    __device__ const std::byte* bytes() const { return base + at; }
    // Four bytes `offset` behind, and four 16 further; up to two before and behind are read too.
    __device__ __forceinline__ uint2 even_words(uint32_t offset) const {
        const uint32_t from = at + offset, by = (from & 2) * 8;
        const auto* words = reinterpret_cast<const uint32_t*>(base + (from & ~3u));
        return {__funnelshift_r(words[0], words[1], by), __funnelshift_r(words[4], words[5], by)};
    }
};

namespace unpack {
// Byte `index` of a word, 0 to 255.
__device__ __forceinline__ float byte_value(uint32_t word, uint32_t index) {
    return __uint_as_float(__byte_perm(word, 0x4b000000, 0x7440 | index)) - 8388608.0f;
}
}  // namespace unpack

template <>
struct Int8Weights<WeightType::q4_k> {
    static constexpr bool kMinimum = true, kHalves = false, kSpread = true;
    __device__ __forceinline__ static uint2 codes(RawPiece piece, uint32_t group, uint32_t t) {
        const auto* words =
            reinterpret_cast<const uint32_t*>(piece.bytes() + 16 + group / 2 * 32) + t;
        const uint32_t by = group % 2 * 4;
        return {words[0] >> by & 0x0f0f0f0f, words[4] >> by & 0x0f0f0f0f};
    }
    __device__ __forceinline__ static void spread(const std::byte* piece, uint32_t half,
                                                  float2 (&out)[4]) {
        const uint4 head = *reinterpret_cast<const uint4*>(piece);
        const float2 d = __half22float2(*reinterpret_cast<const __half2*>(&head.x));
        const uint32_t scales =
            half ? (head.w & 0x0f0f0f0f) | (head.y >> 2 & 0x30303030) : head.y & 0x3f3f3f3f;
        const uint32_t minimums =
            half ? (head.w >> 4 & 0x0f0f0f0f) | (head.z >> 2 & 0x30303030) : head.z & 0x3f3f3f3f;
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i)
            out[i] = {__fmul_rn(d.x, unpack::byte_value(scales, i)),
                      __fmul_rn(d.y, unpack::byte_value(minimums, i))};
    }
};

template <>
struct Int8Weights<WeightType::q6_k> {
    static constexpr bool kMinimum = false, kHalves = true, kSpread = true;
    __device__ __forceinline__ static uint2 codes(RawPiece piece, uint32_t group, uint32_t t) {
        const uint32_t number = group % 4;
        const uint2 low = piece.even_words(group / 4 * 64 + number % 2 * 32 + 4 * t);
        const uint2 high = piece.even_words(128 + group / 4 * 32 + 4 * t);
        const auto code = [&](uint32_t low_bits, uint32_t high_bits) {
            const uint32_t four = (low_bits >> (number / 2 * 4) & 0x0f0f0f0f) |
                                  (high_bits >> (number * 2) & 0x03030303) << 4;
            return (four + 0x60606060u) ^ 0x80808080u;  // less 32, byte by byte
        };
        return {code(low.x, high.x), code(low.y, high.y)};
    }
    __device__ __forceinline__ static void spread(const std::byte* piece, uint32_t half,
                                                  float2 (&out)[4]) {
        const float d = unpack::half_at(piece + 208);
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            const uint32_t pair = unpack::pair_at(piece + 192 + half * 8 + 2 * i);
            const auto scale = [&](uint32_t byte) {
                return __fmul_rn(d, static_cast<float>(static_cast<int8_t>(byte)));
            };
            out[i] = {scale(pair & 0xff), scale(pair >> 8)};
        }
    }
};

template <>
struct Int8Weights<WeightType::q8_0> {
    static constexpr bool kMinimum = false, kHalves = false, kSpread = false;
    __device__ __forceinline__ static uint2 codes(RawPiece piece, uint32_t group, uint32_t t) {
        return piece.even_words(group * 34 + 2 + 4 * t);
    }
    __device__ __forceinline__ static float2 scales(RawPiece piece, uint32_t group) {
        return {unpack::half_at(piece.bytes() + group * 34), 0};
    }
};

}  // namespace granary::gpu::cuda

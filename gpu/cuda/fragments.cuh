// SPDX-License-Identifier: GPL-3.0-or-later
// Quantised weights, from raw blocks in shared memory straight to tensor-core operands.
//
// Weights are the A operand (16 rows x 16 columns a warp and step) of mma.sync and of wgmma alike,
// held in registers, so a widened weight never passes through shared memory. Every block format
// keeps 32 consecutive weights of a row together; thread t of the four that share a row widens
// weights 8t .. 8t + 7 of each such group, which are the group's two steps of 16 columns:
//
//   step s, operand register pair h (low or high columns), half i:  weight 8t + 4s + 2i + h
//
// (i before h, since one AND of a 32-bit word yields bytes 0 and 2). The other operand has its
// columns in the same order: ordered_rows.h.
#pragma once

#include "gpu/cuda/mma.cuh"
#include "gpu/cuda/ordered_rows.h"

namespace granary::gpu::cuda {

// One row's operands of the two steps of 32 columns: [step][h].
struct RowOperands {
    uint32_t value[2][2];
};

__device__ __forceinline__ __half2 both_halves(__half value) {
    return __half2half2(value);
}

// Byte `index` of `word` as a number from 0 to 255 in both halves: 0x6400 + b is 1024 + b.
__device__ __forceinline__ __half2 byte_in_both(uint32_t word, uint32_t index) {
    const uint32_t raised = __byte_perm(word, 0x64646464, 0x4040 | index | index << 8);
    return __hsub2(as_half2(raised), as_half2(0x64006400));
}

// (word & mask) | bits in one instruction.
template <uint32_t kMask, uint32_t kBits>
__device__ __forceinline__ uint32_t and_or(uint32_t word) {
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "n"(kMask), "n"(kBits));
    return result;
}

// What Q4_K and Q5_K begin with: f16 d and dmin, eight pairs of 6-bit scale and minimum; of it the
// two pairs of 64 weights.
struct PairScales {
    uint32_t d;      // f16 d, dmin
    uint32_t pairs;  // two scales, two minimums
    __device__ static PairScales of(const uint4& head, uint32_t quarter) {
        const uint32_t by = quarter % 2 * 16;
        uint32_t scales, minimums;
        if (quarter < 2) {
            scales = head.y >> by & 0x3f3f;
            minimums = head.z >> by & 0x3f3f;
        } else {
            scales = (head.w >> by & 0x0f0f) | (head.y >> by >> 2 & 0x3030);
            minimums = (head.w >> by >> 4 & 0x0f0f) | (head.z >> by >> 2 & 0x3030);
        }
        return {head.x, __byte_perm(scales, minimums, 0x5410)};
    }
    __device__ __half2 scale(uint32_t half) const {
        return __hmul2(byte_in_both(pairs, half), both_halves(__low2half(as_half2(d))));
    }
    // Negative.
    __device__ __half2 minimum(uint32_t half) const {
        return __hmul2(byte_in_both(pairs, 2 + half),
                       __hneg2(both_halves(__high2half(as_half2(d)))));
    }
};

// Q4_K: 256 weights in 144 bytes: f16 d and dmin, eight pairs of 6-bit scale and minimum, 128
// bytes of nibbles. weight = d * scale * nibble - dmin * minimum.
struct Q4K {
    static constexpr uint32_t kColumns = 256;  // of a block
    static constexpr uint32_t kBlockBytes = 144;
    // Of a block in shared memory: a multiple of 16 bytes that spreads eight rows over the banks.
    static constexpr uint32_t kStride = 160;
    static constexpr uint32_t kPieces = 9;  // copies of 16 bytes that bring one block
    static constexpr bool kAligned = true;  // every block begins at a multiple of 16 bytes

    // What thread t of a row needs of the 64 weights `quarter` (0..3) of the block at `block`.
    struct Raw {
        uint2 codes;
        PairScales scales;
    };
    __device__ static Raw load(const std::byte* block, uint32_t /*shift*/, uint32_t quarter,
                               uint32_t t) {
        return {*reinterpret_cast<const uint2*>(block + 16 + 32 * quarter + 8 * t),
                PairScales::of(*reinterpret_cast<const uint4*>(block), quarter)};
    }
    // The 32 weights `half` of those 64: low or high nibbles.
    __device__ static RowOperands widen(const Raw& raw, uint32_t half) {
        const __half2 scale = raw.scales.scale(half), minimum = raw.scales.minimum(half);
        RowOperands out;
#pragma unroll
        for (uint32_t s = 0; s < 2; ++s)
#pragma unroll
            for (uint32_t h = 0; h < 2; ++h) {
                const uint32_t word = (s ? raw.codes.y : raw.codes.x) >> 8 * h;
                // 1024 + n, less 1024; or 1024 + 16 n, times 1/16, less 64.
                const __half2 code = half ? __hfma2(as_half2(and_or<0x00f000f0, 0x64006400>(word)),
                                                    as_half2(0x2c002c00), as_half2(0xd400d400))
                                          : __hsub2(as_half2(and_or<0x000f000f, 0x64006400>(word)),
                                                    as_half2(0x64006400));
                out.value[s][h] = bits(__hfma2(code, scale, minimum));
            }
        return out;
    }
};

// Q5_K: as Q4_K, and 32 bytes of fifth bits behind the scales: bit n of byte i is that of weight i
// of the 32 weights n.
struct Q5K {
    static constexpr uint32_t kColumns = 256;
    static constexpr uint32_t kBlockBytes = 176;
    static constexpr uint32_t kStride = 224;
    static constexpr uint32_t kPieces = 11;
    static constexpr bool kAligned = true;

    struct Raw {
        uint2 codes, fifth;  // fifth bits: of low nibbles lowest, of high ones next
        PairScales scales;
    };
    __device__ static Raw load(const std::byte* block, uint32_t /*shift*/, uint32_t quarter,
                               uint32_t t) {
        const uint2 fifth = *reinterpret_cast<const uint2*>(block + 16 + 8 * t);
        return {*reinterpret_cast<const uint2*>(block + 48 + 32 * quarter + 8 * t),
                {fifth.x >> 2 * quarter, fifth.y >> 2 * quarter},
                PairScales::of(*reinterpret_cast<const uint4*>(block), quarter)};
    }
    __device__ static RowOperands widen(const Raw& raw, uint32_t half) {
        const __half2 scale = raw.scales.scale(half), minimum = raw.scales.minimum(half);
        RowOperands out;
#pragma unroll
        for (uint32_t s = 0; s < 2; ++s)
#pragma unroll
            for (uint32_t h = 0; h < 2; ++h) {
                const uint32_t word = (s ? raw.codes.y : raw.codes.x) >> 8 * h;
                const uint32_t fifth = (s ? raw.fifth.y : raw.fifth.x) >> 8 * h;
                // As those of Q4_K, with one bit more.
                const __half2 code = half ? __hfma2(as_half2(and_or<0x00f000f0, 0x64006400>(word) |
                                                             (fifth << 7 & 0x01000100)),
                                                    as_half2(0x2c002c00), as_half2(0xd400d400))
                                          : __hsub2(as_half2(and_or<0x000f000f, 0x64006400>(word) |
                                                             (fifth << 4 & 0x00100010)),
                                                    as_half2(0x64006400));
                out.value[s][h] = bits(__hfma2(code, scale, minimum));
            }
        return out;
    }
};

// Q8_0: 32 weights in 34 bytes: f16 scale, signed codes. Four of them are a block here: eight,
// which begin at a multiple of 16 bytes, would leave no room for enough activations.
struct Q80 {
    static constexpr uint32_t kColumns = 128;
    static constexpr uint32_t kBlockBytes = 136;
    static constexpr uint32_t kStride = 160;
    static constexpr uint32_t kPieces = 9;  // 136 bytes from byte 0 or 8 of the first
    static constexpr bool kAligned = false;

    struct Raw {
        uint2 codes[2];  // of each 32 weights, their signs turned
        uint32_t scale;  // f16, of each
    };
    __device__ static Raw load(const std::byte* block, uint32_t shift, uint32_t half_block,
                               uint32_t t) {
        // Codes of the first 32 weights begin two bytes behind a multiple of four.
        const auto* words = reinterpret_cast<const uint32_t*>(block + shift + 68 * half_block);
        const uint32_t first = words[2 * t], second = words[2 * t + 1], third = words[2 * t + 2];
        Raw raw{{{__byte_perm(first, second, 0x5432), __byte_perm(second, third, 0x5432)},
                 {words[9 + 2 * t], words[10 + 2 * t]}},
                __byte_perm(words[0], words[8], 0x7610)};
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i) {
            raw.codes[i].x ^= 0x80808080;
            raw.codes[i].y ^= 0x80808080;
        }
        return raw;
    }
    __device__ static RowOperands widen(const Raw& raw, uint32_t half) {
        const __half2 both = as_half2(raw.scale);
        const __half2 scale = both_halves(half ? __high2half(both) : __low2half(both));
        RowOperands out;
#pragma unroll
        for (uint32_t s = 0; s < 2; ++s)
#pragma unroll
            for (uint32_t h = 0; h < 2; ++h) {
                const uint32_t word = (s ? raw.codes[half].y : raw.codes[half].x) >> 8 * h;
                // 1024 + 128 + code, less 1152.
                out.value[s][h] = bits(__hmul2(
                    __hsub2(as_half2(and_or<0x00ff00ff, 0x64006400>(word)), as_half2(0x64806480)),
                    scale));
            }
        return out;
    }
};

// Q6_K: 256 weights in 210 bytes: 128 bytes of low nibbles, 64 of upper two bits, 16 signed scales
// for 16 weights each, f16 d. weight = d * scale * (code - 32). Blocks begin at even bytes only:
// they are copied from the multiple of 16 before, and `shift` says how many bytes that is.
struct Q6K {
    static constexpr uint32_t kColumns = 256;
    static constexpr uint32_t kBlockBytes = 210;
    static constexpr uint32_t kStride = 240;
    static constexpr uint32_t kPieces = 14;  // 224 bytes; 15 where shift > 14 never happens: even
    static constexpr bool kAligned = false;

    struct Raw {
        uint2 low[2];    // of each 32 weights
        uint2 upper;     // their upper bits, those of the first 32 two bits below
        uint32_t scale;  // f16, of each
    };
    __device__ static Raw load(const std::byte* block, uint32_t shift, uint32_t quarter,
                               uint32_t t) {
        // Each half of 128 weights has four 32s: low nibbles of 32 bytes, of the next 32, then the
        // high nibbles of both.
        const uint32_t low_at = shift + 64 * (quarter / 2) + 8 * t, by = quarter % 2 * 4;
        const auto* scales =
            reinterpret_cast<const uint8_t*>(block + shift + 192 + 4 * quarter + t / 2);
        Raw raw{{eight_bytes(block, low_at), eight_bytes(block, low_at + 32)},
                eight_bytes(block, shift + 128 + 32 * (quarter / 2) + 8 * t),
                0};
        // Signed bytes: 1024 + 128 + b, less 1152.
        const uint32_t raised = (scales[0] | scales[2] << 16) ^ 0x64806480u;
        raw.scale =
            bits(__hmul2(__hsub2(as_half2(raised), as_half2(0x64806480)),
                         both_halves(*reinterpret_cast<const __half*>(block + shift + 208))));
        raw.low[0] = {raw.low[0].x >> by, raw.low[0].y >> by};
        raw.low[1] = {raw.low[1].x >> by, raw.low[1].y >> by};
        raw.upper = {raw.upper.x >> by, raw.upper.y >> by};
        return raw;
    }
    __device__ static RowOperands widen(const Raw& raw, uint32_t half) {
        const __half2 both = as_half2(raw.scale);
        const __half2 scale = both_halves(half ? __high2half(both) : __low2half(both));
        RowOperands out;
#pragma unroll
        for (uint32_t s = 0; s < 2; ++s)
#pragma unroll
            for (uint32_t h = 0; h < 2; ++h) {
                const uint32_t low = (s ? raw.low[half].y : raw.low[half].x) >> 8 * h;
                const uint32_t upper = (s ? raw.upper.y : raw.upper.x) >> 8 * h;
                const uint32_t code = and_or<0x000f000f, 0x64006400>(low) |
                                      ((half ? upper << 2 : upper << 4) & 0x00300030);
                // 1024 + code, less 1024 + 32.
                out.value[s][h] =
                    bits(__hmul2(__hsub2(as_half2(code), as_half2(0x64206420)), scale));
            }
        return out;
    }

  private:
    // Eight bytes at an even offset, through aligned words.
    __device__ static uint2 eight_bytes(const std::byte* block, uint32_t offset) {
        const auto* words = reinterpret_cast<const uint32_t*>(block + (offset & ~3u));
        const uint32_t by = offset % 4 * 8;
        const uint32_t a = words[0], b = words[1], c = words[2];
        return {__funnelshift_r(a, b, by), __funnelshift_r(b, c, by)};
    }
};

}  // namespace granary::gpu::cuda

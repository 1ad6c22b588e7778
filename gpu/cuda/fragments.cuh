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

// Operands of one row for four steps: [step][h].
struct RowOperands {
    uint32_t value[4][2];
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

// Q4_K: 256 weights in 144 bytes: f16 d and dmin, eight pairs of 6-bit scale and minimum, 128
// bytes of nibbles. weight = d * scale * nibble - dmin * minimum.
struct Q4K {
    static constexpr uint32_t kBlockBytes = 144;
    // Of a block in shared memory: a multiple of 16 bytes that spreads eight rows over the banks.
    static constexpr uint32_t kStride = 160;
    static constexpr uint32_t kPieces = 9;  // copies of 16 bytes that bring one block
    static constexpr bool kAligned = true;  // every block begins at a multiple of 16 bytes

    // The 64 weights `quarter` (0..3) of the block at `block`; thread t of the row.
    __device__ static RowOperands widen(const std::byte* block, uint32_t /*shift*/,
                                        uint32_t quarter, uint32_t t) {
        const uint4 head = *reinterpret_cast<const uint4*>(block);
        const uint2 codes = *reinterpret_cast<const uint2*>(block + 16 + 32 * quarter + 8 * t);
        const __half2 d = both_halves(__low2half(as_half2(head.x)));
        const __half2 less = __hneg2(both_halves(__high2half(as_half2(head.x))));
        // Scales of groups 2 * quarter and 2 * quarter + 1 as the low two bytes.
        uint32_t scales, minimums;
        if (quarter < 2) {
            scales = head.y >> 16 * quarter & 0x3f3f;
            minimums = head.z >> 16 * quarter & 0x3f3f;
        } else {
            const uint32_t by = 16 * (quarter - 2);
            scales = (head.w >> by & 0x0f0f) | (head.y >> by >> 2 & 0x3030);
            minimums = (head.w >> by >> 4 & 0x0f0f) | (head.z >> by >> 2 & 0x3030);
        }
        const __half2 scale[2] = {__hmul2(byte_in_both(scales, 0), d),
                                  __hmul2(byte_in_both(scales, 1), d)};
        const __half2 minimum[2] = {__hmul2(byte_in_both(minimums, 0), less),
                                    __hmul2(byte_in_both(minimums, 1), less)};
        RowOperands out;
#pragma unroll
        for (uint32_t s = 0; s < 2; ++s)
#pragma unroll
            for (uint32_t h = 0; h < 2; ++h) {
                const uint32_t word = (s ? codes.y : codes.x) >> 8 * h;
                const __half2 low =
                    __hsub2(as_half2(and_or<0x000f000f, 0x64006400>(word)), as_half2(0x64006400));
                // 1024 + 16 n, times 1/16, less 64.
                const __half2 high = __hfma2(as_half2(and_or<0x00f000f0, 0x64006400>(word)),
                                             as_half2(0x2c002c00), as_half2(0xd400d400));
                out.value[s][h] = bits(__hfma2(low, scale[0], minimum[0]));
                out.value[2 + s][h] = bits(__hfma2(high, scale[1], minimum[1]));
            }
        return out;
    }
};

// Q6_K: 256 weights in 210 bytes: 128 bytes of low nibbles, 64 of upper two bits, 16 signed scales
// for 16 weights each, f16 d. weight = d * scale * (code - 32). Blocks begin at even bytes only:
// they are copied from the multiple of 16 before, and `shift` says how many bytes that is.
struct Q6K {
    static constexpr uint32_t kBlockBytes = 210;
    static constexpr uint32_t kStride = 240;
    static constexpr uint32_t kPieces = 14;  // 224 bytes; 15 where shift > 14 never happens: even
    static constexpr bool kAligned = false;

    __device__ static RowOperands widen(const std::byte* block, uint32_t shift, uint32_t quarter,
                                        uint32_t t) {
        // Groups of 32 in each half of 128 weights: low nibbles of 32 bytes, of the next 32, then
        // the high nibbles of both.
        const uint32_t low_at = shift + 64 * (quarter / 2) + 8 * t;
        const uint2 first = eight_bytes(block, low_at), second = eight_bytes(block, low_at + 32);
        const uint2 upper = eight_bytes(block, shift + 128 + 32 * (quarter / 2) + 8 * t);
        const __half2 d = both_halves(*reinterpret_cast<const __half*>(block + shift + 208));
        const auto* scales =
            reinterpret_cast<const uint8_t*>(block + shift + 192 + 4 * quarter + t / 2);
        const __half2 scale[2] = {__hmul2(signed_in_both(scales[0]), d),
                                  __hmul2(signed_in_both(scales[2]), d)};
        const uint32_t nibble = quarter % 2 * 4, pair = quarter % 2 * 4;
        RowOperands out;
#pragma unroll
        for (uint32_t s = 0; s < 2; ++s)
#pragma unroll
            for (uint32_t h = 0; h < 2; ++h) {
                const uint32_t one = (s ? first.y : first.x) >> (8 * h + nibble);
                const uint32_t two = (s ? second.y : second.x) >> (8 * h + nibble);
                const uint32_t high = (s ? upper.y : upper.x) >> 8 * h >> pair;
                const uint32_t code_one =
                    and_or<0x000f000f, 0x64006400>(one) | (high << 4 & 0x00300030);
                const uint32_t code_two =
                    and_or<0x000f000f, 0x64006400>(two) | (high << 2 & 0x00300030);
                out.value[s][h] =
                    bits(__hmul2(__hsub2(as_half2(code_one), as_half2(0x64206420)), scale[0]));
                out.value[2 + s][h] =
                    bits(__hmul2(__hsub2(as_half2(code_two), as_half2(0x64206420)), scale[1]));
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
    // A signed byte in both halves: 1024 + 128 + b, less 1152.
    __device__ static __half2 signed_in_both(uint8_t byte) {
        const uint32_t raised = (byte ^ 0x80u) * 0x00010001u | 0x64006400u;
        return __hsub2(as_half2(raised), as_half2(0x64806480));
    }
};

}  // namespace granary::gpu::cuda

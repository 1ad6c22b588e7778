// SPDX-License-Identifier: GPL-3.0-or-later
// Codes of K/V cells to f16, two at a time.
#pragma once

#include "gpu/cuda/mma.cuh"

namespace granary::gpu::cuda {
namespace {

// Bytes kLow and kHigh of `word` (as numbers from 0 to 255, offset by 128) as they are.
template <uint32_t kLow, uint32_t kHigh>
__device__ __forceinline__ uint32_t widen_int8(uint32_t word) {
    const uint32_t raised = __byte_perm(word, 0x64646464, 0x4040 | kLow | kHigh << 8);
    return bits(__hsub2(as_half2(raised), as_half2(0x64806480)));  // 1024 + 128
}
// Nibbles of bytes 0 and 2: the low ones, the high ones. 0x6400 + n is 1024 + n.
__device__ __forceinline__ uint32_t widen_low(uint32_t word) {
    const uint32_t raised = (word & 0x000f000f) ^ 0x64086408;
    return bits(__hsub2(as_half2(raised), as_half2(0x64086408)));
}
__device__ __forceinline__ uint32_t widen_high(uint32_t word) {
    const uint32_t raised = (word & 0x00f000f0) ^ 0x64806480;
    return bits(__hfma2(as_half2(raised), as_half2(0x2c002c00), as_half2(0xd480d480)));
}
__device__ __forceinline__ uint32_t times(uint32_t a, uint32_t b) {
    return bits(__hmul2(as_half2(a), as_half2(b)));
}
// Halves of the same place in two words.
__device__ __forceinline__ uint32_t pair_of(const uint32_t* a, const uint32_t* b, uint32_t half) {
    return __byte_perm(a[half / 2], b[half / 2], half % 2 ? 0x7632 : 0x5410);
}

}  // namespace
}  // namespace granary::gpu::cuda

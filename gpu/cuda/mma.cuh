// SPDX-License-Identifier: GPL-3.0-or-later
// One warp's building blocks: asynchronous copies of 16 bytes, 8 x 8 matrix loads, the f16 and
// 8-bit tensor-core products. Names follow the instructions (PTX ISA 9.0). Before compute
// capability 8.0 copies are done at once and a product is several smaller ones.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "gpu/cuda/architecture.cuh"

namespace granary::gpu::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// 16 bytes from global to shared memory, both 16-byte aligned.
__device__ __forceinline__ void copy_16(uint32_t to, const void* from) {
#if GRANARY_CUDA_ARCH >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
#else
    const uint4 value = *static_cast<const uint4*>(from);
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(value.x), "r"(value.y),
                 "r"(value.z), "r"(value.w)
                 : "memory");
#endif
}
// 4 or 8 bytes, aligned to as many.
template <uint32_t kBytes>
__device__ __forceinline__ void copy_small(uint32_t to, const void* from) {
    static_assert(kBytes == 4 || kBytes == 8);
#if GRANARY_CUDA_ARCH >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(kBytes)
                 : "memory");
#else
    const auto* words = static_cast<const uint32_t*>(from);
    for (uint32_t i = 0; i < kBytes / 4; ++i)
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(to + 4 * i), "r"(words[i]) : "memory");
#endif
}
__device__ __forceinline__ void copies_commit() {
#if GRANARY_CUDA_ARCH >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until at most `kPending` of this thread's newest groups are unfinished.
template <int kPending>
__device__ __forceinline__ void copies_wait() {
#if GRANARY_CUDA_ARCH >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

__device__ __forceinline__ void load_matrices(uint32_t (&out)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&out)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
}

// c[16, 8] += a[16, 16] b[16, 8]; f16 factors, f32 sums. With g = lane / 4 and t = lane % 4 a
// thread holds a[g | g + 8][2t, 2t + 1 | 2t + 8, 2t + 9] as {g low, g + 8 low, g high, g + 8
// high}, b[the same k][g] and c[g | g + 8][2t, 2t + 1].
__device__ __forceinline__ void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], uint32_t b_low,
                                            uint32_t b_high) {
#if GRANARY_CUDA_ARCH >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
#else
    const auto half = [&](uint32_t low, uint32_t high, uint32_t b) {
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(low), "r"(high), "r"(b));
    };
    half(a[0], a[1], b_low);
    half(a[2], a[3], b_high);
#endif
}

// c[8, 8] += a[8, 16] b[16, 8], the only 8-bit product of 7.5.
__device__ __forceinline__ void mma_8x8x16(int32_t& c0, int32_t& c1, uint32_t a, uint32_t b) {
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+r"(c0), "+r"(c1)
        : "r"(a), "r"(b));
}

// c[16, 8] += a[16, 32] b[32, 8]; signed bytes, i32 sums. A thread holds a[g | g + 8][4t .. 4t + 3
// | 16 + 4t .. 16 + 4t + 3] as {g low, g + 8 low, g high, g + 8 high}, b[the same k][g] and c[g | g
// + 8][2t, 2t + 1].
__device__ __forceinline__ void mma_16x8x32(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b_low,
                                            uint32_t b_high) {
#if GRANARY_CUDA_ARCH >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
#else
    mma_8x8x16(c[0], c[1], a[0], b_low);
    mma_8x8x16(c[2], c[3], a[1], b_low);
    mma_8x8x16(c[0], c[1], a[2], b_high);
    mma_8x8x16(c[2], c[3], a[3], b_high);
#endif
}
// Half as deep: a[g | g + 8][4t .. 4t + 3] as {g, g + 8}.
__device__ __forceinline__ void mma_16x8x16(int32_t (&c)[4], const uint32_t (&a)[2], uint32_t b) {
#if GRANARY_CUDA_ARCH >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
#else
    mma_8x8x16(c[0], c[1], a[0], b);
    mma_8x8x16(c[2], c[3], a[1], b);
#endif
}

// An 8 x 8 matrix of f16 of which a thread holds row g, columns 2t, 2t + 1, transposed.
__device__ __forceinline__ uint32_t transposed(uint32_t value) {
    uint32_t result;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(value));
    return result;
}

__device__ __forceinline__ uint32_t bits(__half2 value) {
    return *reinterpret_cast<const uint32_t*>(&value);
}
__device__ __forceinline__ __half2 as_half2(uint32_t value) {
    return *reinterpret_cast<const __half2*>(&value);
}

// Two values as f16, the first in the low half; beyond +-65504 they stay there.
__device__ __forceinline__ uint32_t pack_half2(float low, float high) {
    const __half2 most = as_half2(0x7bff7bff), least = as_half2(0xfbfffbff);
    return bits(__hmax2(__hmin2(__floats2half2_rn(low, high), most), least));
}

// A tile in shared memory has rows of 128 bytes whose 16-byte pieces are swapped by their row
// (piece ^ row % 8), so that eight rows of a matrix load lie in different banks. It is also the
// 128-byte swizzle of the tensor copy engine and of wgmma.
__device__ __forceinline__ uint32_t swizzled(uint32_t row, uint32_t piece) {
    return row * 128 + (piece ^ row % 8) * 16;
}

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Rows of activations, eight columns ("an octet") a thread, and sums over warps and blocks.
#pragma once

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "gpu/cuda/architecture.cuh"
#include "gpu/cuda/decode_codes.cuh"

namespace granary::gpu::cuda {

// Bytes of a row of codes; octets of it, those that only fill it up included.
__host__ __device__ constexpr size_t ordered_row_bytes(uint32_t cols) {
    return (size_t{cols} * 2 + 63) / 64 * 64;
}
__host__ __device__ constexpr uint32_t ordered_octets(uint32_t cols) {
    return (cols + 31) / 32 * 4;
}

__device__ __forceinline__ bool aligned_16(const void* pointer) {
    return (reinterpret_cast<uintptr_t>(pointer) & 15) == 0;
}

// Columns 8 octet .. 8 octet + 7 of a row of `cols` values; zeros past its end.
__device__ __forceinline__ void load_octet(const float* row, uint32_t octet, uint32_t cols,
                                           float (&v)[8]) {
    const uint32_t first = octet * 8;
    if (first + 8 <= cols && aligned_16(row + first)) {
        const auto* from = reinterpret_cast<const float4*>(row + first);
        const float4 a = from[0], b = from[1];
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
        v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) v[i] = first + i < cols ? row[first + i] : 0.0f;
}
// The inverse; nothing past the end is written.
__device__ __forceinline__ void store_octet(float* row, uint32_t octet, uint32_t cols,
                                            const float (&v)[8]) {
    const uint32_t first = octet * 8;
    if (first + 8 <= cols && aligned_16(row + first)) {
        auto* const to = reinterpret_cast<float4*>(row + first);
        to[0] = {v[0], v[1], v[2], v[3]};
        to[1] = {v[4], v[5], v[6], v[7]};
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i)
        if (first + i < cols) row[first + i] = v[i];
}
// To f16 at the octet's places of an ordered row (ordered_rows.h): columns 2 apart are neighbours.
__device__ __forceinline__ void store_ordered(std::byte* row, uint32_t octet, const float (&v)[8]) {
    auto* const to = reinterpret_cast<__half2*>(row) + octet / 4 * 16 + octet % 4;
#pragma unroll
    for (uint32_t s = 0; s < 2; ++s)
#pragma unroll
        for (uint32_t h = 0; h < 2; ++h)
            to[8 * s + 4 * h] = __floats2half2_rn(v[4 * s + h], v[4 * s + 2 + h]);
}

// Codes of an octet, of a decode step or of a prompt; a row of either has ordered_row_bytes. As
// store_decode_codes wants to be called.
__device__ __forceinline__ void store_codes(bool decode, std::byte* row, uint32_t octet,
                                            const float (&v)[8]) {
    if (decode)
        store_decode_codes(row, octet, v);
    else
        store_ordered(row, octet, v);
}

// Over a warp, in one fixed order; every lane gets it.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_xor_sync(~0u, value, distance);
    return value;
}
// The largest and the smallest over a warp; every lane gets it.
__device__ __forceinline__ uint32_t warp_max(uint32_t value) {
#if GRANARY_CUDA_ARCH >= 800
    return __reduce_max_sync(~0u, value);
#else
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        value = max(value, __shfl_xor_sync(~0u, value, distance));
    return value;
#endif
}
__device__ __forceinline__ uint32_t warp_min(uint32_t value) {
    return ~warp_max(~value);
}

// Counts one more; answers how many there were before. What those had written before they counted
// is visible then, past the L1 cache.
__device__ __forceinline__ uint32_t count_in(uint32_t* counter) {
    uint32_t before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(counter)
                 : "memory");
    return before;
}

// Over a block of kThreads, in one fixed order; every thread gets it. `sums` is shared memory of
// kThreads / 32 floats that nothing else uses before the block's next barrier.
template <uint32_t kThreads>
__device__ __forceinline__ float block_sum(float value, float* sums) {
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    float total = 0;
#pragma unroll
    for (uint32_t i = 0; i < kThreads / 32; ++i) total += sums[i];
    return total;
}

// x / (1 + exp(-gate)), the limit keeping exp finite.
__device__ __forceinline__ float times_sigmoid(float x, float gate) {
    return x / (1.0f + expf(fminf(-gate, 88.0f)));
}

}  // namespace granary::gpu::cuda

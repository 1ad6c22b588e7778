// SPDX-License-Identifier: GPL-3.0-or-later
// Copies by many threads, from page-locked host memory or device memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace granary::gpu::cuda {

__device__ __forceinline__ uint4 read_once(const uint4* from) {
    uint4 value;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(from));
    return value;
}

// Thread `thread` of `threads` takes its share. The link wants about 100 KB of reads under way
// (55 GB/s, 1.8 us): a thread has eight reads of 16 bytes under way, so 16 blocks of 256 threads
// have 512 KB. What is not aligned to 16 bytes, an odd file's, goes byte by byte.
__device__ __forceinline__ void copy_share(const std::byte* from, std::byte* to, size_t bytes,
                                           size_t thread, size_t threads) {
    constexpr uint32_t kAtOnce = 8;
    const bool aligned =
        ((reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to)) & 15) == 0;
    const size_t count = aligned ? bytes / 16 : 0;
    const auto* const wide_from = reinterpret_cast<const uint4*>(from);
    auto* const wide_to = reinterpret_cast<uint4*>(to);
    for (size_t i = thread; i < count; i += kAtOnce * threads) {
        uint4 value[kAtOnce];
#pragma unroll
        for (uint32_t j = 0; j < kAtOnce; ++j)
            if (i + j * threads < count) value[j] = read_once(wide_from + i + j * threads);
#pragma unroll
        for (uint32_t j = 0; j < kAtOnce; ++j)
            if (i + j * threads < count) wide_to[i + j * threads] = value[j];
    }
    for (size_t i = count * 16 + thread; i < bytes; i += threads) to[i] = from[i];
}

}  // namespace granary::gpu::cuda

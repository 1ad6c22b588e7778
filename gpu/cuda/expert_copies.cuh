// SPDX-License-Identifier: GPL-3.0-or-later
// How kThreads threads bring an expert matmul's operands to shared memory, 16 bytes a copy.
// Addresses follow from few registers by one or two instructions each: a version that computed each
// from its row spent more time on that than the tensor cores on the products.
#pragma once

#include "gpu/cuda/mma.cuh"

namespace granary::gpu::cuda {

// One block of each of `rows` rows of a matrix, Format::kStride apart in shared memory. `from`: the
// first row's block.
template <class Format, uint32_t kThreads>
__device__ __forceinline__ void copy_blocks(uint32_t to, const std::byte* from, uint32_t row_bytes,
                                            uint32_t rows, uint32_t thread) {
    constexpr uint32_t kAtOnce = kThreads / Format::kPieces;
    const uint32_t row = thread / Format::kPieces, piece = thread % Format::kPieces;
    if (row >= kAtOnce) return;
    from += uint64_t{row} * row_bytes + (Format::kAligned ? piece * 16 : 0);
    to += row * Format::kStride + piece * 16;
    const uint32_t step = row_bytes * kAtOnce;
#pragma unroll 8
    for (uint32_t i = row; i < rows; i += kAtOnce) {
        const std::byte* at = from;
        if (!Format::kAligned)
            at = reinterpret_cast<const std::byte*>(reinterpret_cast<uintptr_t>(at) &
                                                    ~uintptr_t{15}) +
                 piece * 16;
        copy_16(to, at);
        from += step;
        to += kAtOnce * Format::kStride;
    }
}

// Where the rows begin that a thread copies, in bytes from the activations' first.
template <uint32_t kCount>
struct ThreadRows {
    uint32_t offset[kCount];
};
// The same of all threads, for a tile's 128 rows; those of a thread lie side by side.
template <uint32_t kThreads>
struct InRows {
    static constexpr uint32_t kAtOnce = kThreads / 8, kEach = 128 / kAtOnce;
    alignas(16) uint32_t offset[128];
    __device__ void set(uint32_t row, uint32_t bytes) {
        offset[row % kAtOnce * kEach + row / kAtOnce] = bytes;
    }
    // Of the first kRows rows.
    template <uint32_t kRows>
    __device__ ThreadRows<kRows / kAtOnce> of(uint32_t thread) const {
        const auto* fours = reinterpret_cast<const uint4*>(offset + thread / 8 * kEach);
        ThreadRows<kRows / kAtOnce> rows;
#pragma unroll
        for (uint32_t i = 0; i < kRows / kAtOnce; i += 4) {
            const uint4 four = fours[i / 4];
            const uint32_t values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (uint32_t j = 0; j < 4 && i + j < kRows / kAtOnce; ++j)
                rows.offset[i + j] = values[j];
        }
        return rows;
    }
};

// 64 columns of the rows of all kThreads threads, swizzled, and the next 64 elsewhere. `from`:
// those of the activations' first row.
template <uint32_t kThreads, uint32_t kCount>
__device__ __forceinline__ void copy_activations(uint32_t one, uint32_t two, const std::byte* from,
                                                 const ThreadRows<kCount>& rows, uint32_t thread) {
    from += thread % 8 * 16;
    const uint32_t at = swizzled(thread / 8, thread % 8);
#pragma unroll
    for (uint32_t i = 0; i < kCount; ++i) {
        const std::byte* const row = from + rows.offset[i];
        copy_16(one + at + i * (kThreads / 8) * 128, row);
        copy_16(two + at + i * (kThreads / 8) * 128, row + 128);
    }
}
// 64 columns only.
template <uint32_t kThreads, uint32_t kCount>
__device__ __forceinline__ void copy_activations(uint32_t to, const std::byte* from,
                                                 const ThreadRows<kCount>& rows, uint32_t thread) {
    from += thread % 8 * 16;
    to += swizzled(thread / 8, thread % 8);
#pragma unroll
    for (uint32_t i = 0; i < kCount; ++i)
        copy_16(to + i * (kThreads / 8) * 128, from + rows.offset[i]);
}

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Copies pieces from page-locked host memory (or device memory) in one launch: the experts that a
// decode step misses, 1.3 to 3 MB each.
//
// The link wants about 100 KB of reads under way (55 GB/s, 1.8 us): a thread has eight reads of 16
// bytes under way, so 16 blocks of 256 threads have 512 KB.
#include "gpu/cuda/gather.h"

#include <cstdint>

namespace granary::gpu::cuda {
namespace {

__device__ __forceinline__ uint4 read_once(const uint4* from) {
    uint4 value;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(from));
    return value;
}

}  // namespace

// Grid: (blocks a piece, pieces).
extern "C" __global__ void __launch_bounds__(256) gather_pieces(const GatherPiece* pieces) {
    constexpr uint32_t kAtOnce = 8;
    const GatherPiece piece = pieces[blockIdx.y];
    const auto* from = reinterpret_cast<const uint4*>(piece.from);
    auto* to = reinterpret_cast<uint4*>(piece.to);
    const size_t count = piece.bytes / 16, stride = size_t{gridDim.x} * blockDim.x;
    for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
         i += kAtOnce * stride) {
        uint4 value[kAtOnce];
#pragma unroll
        for (uint32_t j = 0; j < kAtOnce; ++j)
            if (i + j * stride < count) value[j] = read_once(from + i + j * stride);
#pragma unroll
        for (uint32_t j = 0; j < kAtOnce; ++j)
            if (i + j * stride < count) to[i + j * stride] = value[j];
    }
}

}  // namespace granary::gpu::cuda

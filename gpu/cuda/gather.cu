// SPDX-License-Identifier: GPL-3.0-or-later
// Copies pieces from page-locked host memory (or device memory) in one launch: the experts that a
// decode step misses, 1.3 to 3 MB each, or that a prompt's chunk needs.
#include "gpu/cuda/cpu_share.cuh"
#include "gpu/cuda/early.cuh"
#include "gpu/cuda/gather.cuh"

#include "gpu/cuda/gather.h"

namespace granary::gpu::cuda {

// Grid: (blocks a piece, pieces). Pieces of no bytes cost nothing.
extern "C" __global__ void __launch_bounds__(256) gather_pieces(const GatherPiece* pieces) {
    let_next_begin();
    wait_for_kernels_ahead();
    const GatherPiece piece = pieces[blockIdx.y];
    copy_share(piece.from, piece.to, piece.bytes, size_t{blockIdx.x} * 256 + threadIdx.x,
               size_t{gridDim.x} * 256);
}

// Waits until the processor has brought what gather_pieces is to take. A block of one warp: others
// would only take turns on the link.
extern "C" __global__ void __launch_bounds__(32)
    wait_for_staged(const __grid_constant__ CpuShare share) {
    let_next_begin();
    wait_for_kernels_ahead();
    const uint64_t number = *share.staging;
    if (number == CpuRequest::kNone) return;
    if (threadIdx.x == 0)
        while (read_of_host(&share.request->staged) != number) {
        }
}

// The listed experts that have routes, from their home to where `to` says. Grid: (blocks a matrix,
// 3, experts of the list).
extern "C" __global__ void __launch_bounds__(256)
    gather_routed(const __grid_constant__ GatherList list, const int32_t* count,
                  const ExpertEntry* home, const ExpertEntry* to) {
    const uint32_t expert = list.expert[blockIdx.z];
    if (count[expert] == 0) return;
    const ExpertEntry source = home[expert], target = to[expert];
    const std::byte* const from = blockIdx.y == 0   ? source.gate
                                  : blockIdx.y == 1 ? source.up
                                                    : source.down;
    const std::byte* const place = blockIdx.y == 0   ? target.gate
                                   : blockIdx.y == 1 ? target.up
                                                     : target.down;
    copy_share(from, const_cast<std::byte*>(place), list.bytes[blockIdx.y],
               size_t{blockIdx.x} * 256 + threadIdx.x, size_t{gridDim.x} * 256);
}

}  // namespace granary::gpu::cuda

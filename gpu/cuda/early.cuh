// SPDX-License-Identifier: GPL-3.0-or-later
// Kernels of a decode step are short: a good part of each would pass until the one ahead has ended,
// its writes are seen and the next one's blocks stand ready. So they are queued to begin early
// (programmatic dependent launch, compute capability 9.0 and up) and keep four rules:
//
//   - what an earlier kernel of the step wrote, or still reads, is touched only behind
//     wait_for_kernels_ahead(); before it a kernel brings what does not change (weights);
//   - every kernel waits, so that behind the wait all kernels ahead have ended, not only the last;
//   - a kernel lets the next one begin at its own start. One that does so behind its wait (its
//     comment says so) gives the next the results of all kernels but itself from the beginning;
//   - a step's first kernel (embed) does not begin early, and stands behind the copy of the step's
//     place. So what the steps before wrote, cells of K/V and tables of experts, is there before
//     any wait, where a step writes it after all of its own reads: a layer's cache is asked once.
//     The cell that is new is read by the warp alone that has stored it.
#pragma once

#include "gpu/cuda/architecture.cuh"

namespace granary::gpu::cuda {

__device__ __forceinline__ void wait_for_kernels_ahead() {
#if GRANARY_CUDA_ARCH >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void let_next_begin() {
#if GRANARY_CUDA_ARCH >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace granary::gpu::cuda

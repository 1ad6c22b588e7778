// SPDX-License-Identifier: GPL-3.0-or-later
// Copies of what a decode step reads once: weights and cells, more than the second cache holds.
// They are marked to leave it first, so that activations, arguments and the kernels' own code stay.
#pragma once

#include "gpu/cuda/mma.cuh"

namespace granary::gpu::cuda {

struct ReadOnce {
    uint64_t policy = 0;
    __device__ __forceinline__ ReadOnce() {
#if GRANARY_CUDA_ARCH >= 800
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
#endif
    }
    // As mma.cuh has it.
    __device__ __forceinline__ void copy_16(uint32_t to, const void* from) const {
#if GRANARY_CUDA_ARCH >= 800
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to),
                     "l"(from), "l"(policy)
                     : "memory");
#else
        cuda::copy_16(to, from);
#endif
    }
};

}  // namespace granary::gpu::cuda

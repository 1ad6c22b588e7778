// SPDX-License-Identifier: GPL-3.0-or-later
// For which compute capability device code is being compiled: 750 is 7.5. Builds with
// GRANARY_CUDA_AS_TURING take the paths of 7.5 on any card, so that they can be tried on newer
// ones.
#pragma once

#if !defined(__CUDA_ARCH__)
#define GRANARY_CUDA_ARCH 0
#elif defined(GRANARY_CUDA_AS_TURING)
#define GRANARY_CUDA_ARCH 750
#else
#define GRANARY_CUDA_ARCH __CUDA_ARCH__
#endif

namespace granary::gpu::cuda {

// No asynchronous copies, 64 KB of shared memory a block, tensor-core products of half the depth.
inline constexpr bool kBefore80 = GRANARY_CUDA_ARCH < 800;

}  // namespace granary::gpu::cuda

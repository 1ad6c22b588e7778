// SPDX-License-Identifier: GPL-3.0-or-later
// Arguments of the kernels that copy pieces of memory, as host and device see them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace granary::gpu::cuda {

// One piece: an expert, or a part of one. Addresses and bytes are multiples of 16.
struct GatherPiece {
    const std::byte* from;  // device memory or page-locked host memory
    std::byte* to;          // device memory
    size_t bytes;
};

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Arguments of the kernels that copy pieces of memory, as host and device see them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/kernels.h"

namespace granary::gpu::cuda {

// One piece: an expert, or a part of one. Best at multiples of 16 bytes.
struct GatherPiece {
    const std::byte* from;  // device memory or page-locked host memory
    std::byte* to;          // device memory
    size_t bytes;
};

inline constexpr uint32_t kGatherBlocks = 8;  // a matrix of an expert

// Some experts, and the bytes of their gate, up and down.
struct GatherList {
    static constexpr uint32_t kMost = 512;
    size_t bytes[3];
    uint16_t expert[kMost];
};

}  // namespace granary::gpu::cuda

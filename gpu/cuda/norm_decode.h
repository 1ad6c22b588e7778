// SPDX-License-Identifier: GPL-3.0-or-later
// How the kernels of norm_decode.cu are launched, as host and device see it.
#pragma once

#include <cstdint>

#include "gpu/cuda/ordered_rows.h"

namespace granary::gpu::cuda {

inline constexpr uint32_t kNormThreads = 512;  // a block a row
// Where blocks work in clusters (compute capability 9.0 and up): so many a row, and so many threads
// at most.
inline constexpr uint32_t kClusterBlocks = 8, kClusterThreads = 256;
// Quads (four columns) of a row that a block has: whole groups of codes.
GRANARY_HOST_DEVICE constexpr uint32_t cluster_quads(uint32_t cols) {
    return ((cols + 31) / 32 + kClusterBlocks - 1) / kClusterBlocks * 8;
}

}  // namespace granary::gpu::cuda

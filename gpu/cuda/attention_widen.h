// SPDX-License-Identifier: GPL-3.0-or-later
// Arguments of the kernels around prompt attention, as host and device see them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/kernels.h"

namespace granary::gpu::cuda {

// Cells that a tile of any prompt kernel has at most: up to the next multiple they are zeroed.
inline constexpr uint32_t kTileCells = 128;

struct AttentionWiden {
    KvView from;
    KvView to;            // f16; indexed by absolute cells, as from
    uint32_t begin, end;  // cells that are stored
    uint32_t kv_heads, dim;
};
inline constexpr uint32_t kWidenThreads = 256;
inline constexpr uint32_t kWidenRun = 16;  // values that a thread widens

struct AttentionFinish {
    float* values;     // [n, heads, dim]
    std::byte* codes;  // [n] ordered rows of code_row bytes; may be null
    size_t code_row;
    uint32_t heads, dim;
    uint32_t rotated;  // V is
};
inline constexpr uint32_t kFinishThreads = 64;

// The plain kernel: query rows of a block, cells of a tile, threads; bytes of shared memory.
inline constexpr uint32_t kPlainRows = 8, kPlainCells = 16, kPlainThreads = 128;
inline constexpr uint32_t kPlainMaxDim = 576;
constexpr uint32_t plain_shared_bytes(uint32_t dim) {
    return (kPlainRows + kPlainCells) * (dim + 1) * 4;
}

}  // namespace granary::gpu::cuda

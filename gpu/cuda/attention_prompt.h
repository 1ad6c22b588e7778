// SPDX-License-Identifier: GPL-3.0-or-later
// Arguments of the prompt attention kernels, as host and device see them.
//
// Attention is cut at multiples of kAttentionCut cells. Each cut's result is computed by itself
// and folded into the running one in order, so the bits do not depend on how cuts are spread over
// launches, nor on whether they run one after the other (long chunks: each launch folds its cut) or
// side by side (short chunks: a launch has a layer of blocks for each cut, attention_fold follows).
#pragma once

#include <cstdint>

#include "gpu/cuda/tensor_map.h"
#include "gpu/kernels.h"

namespace granary::gpu::cuda {

inline constexpr uint32_t kAttentionCut = 16384;

// Of one row over some cells.
struct SoftmaxRow {
    float maximum;  // of the scores, in units of ln 2
    float sum;      // of 2^(score - maximum)
};
// Rows and, for each, the sum of 2^(score - maximum) V.
struct AttentionSums {
    SoftmaxRow* rows;  // [n, heads]
    float* values;     // [n, heads, dim]
};

struct AttentionPrompt {
    const float* q;  // [n, heads, dim]
    KvView kv;       // f16; a cell's K (and V): [kv_heads, dim]
    uint32_t heads, kv_heads, dim;
    uint32_t n;  // tokens, at cells first_cell ..
    uint32_t first_cell;
    float scale;  // of q.k, times log2(e)
    // Cuts first_cut .. first_cut + cuts - 1. Cells of a cut up to first_cell + n - 1 are read in
    // whole tiles: those after it must be finite.
    uint32_t first_cut, cuts;
    // Running: started by cut 0; the last cut leaves the result, divided, in values.
    AttentionSums running;
    AttentionSums cut;  // [cuts] of them, one after the other; null with one cut: folded at once
    // Where not null, the last cut also leaves the result as ordered rows of code_row bytes
    // [n]; not in the plain kernel, nor with `cut`.
    std::byte* codes;
    size_t code_row;
};

// A block has `rows` query rows of one K/V head, a row for each token and query head of its group,
// token by token. Grid: (query_tiles, kv_heads, cuts).
constexpr uint32_t query_tiles(uint32_t n, uint32_t group, uint32_t rows) {
    return (n * group + rows - 1) / rows;
}

// wgmma kernels read K and V of one layer of one conversation through tensor maps of
// [steps][1024 cells][kv_heads][dim] f16 with boxes of 64 dims x `cells` cells, rows of 128 bytes
// swizzled.

// How they are launched: query rows of a block, its threads, bytes of dynamic shared memory, cells
// of a tile (a box of the tensor maps).
struct AttentionLaunch {
    uint32_t rows, threads, shared, cells;
};
inline constexpr AttentionLaunch kAttentionMma64{128, 128, 32768, 64};
inline constexpr AttentionLaunch kAttentionMma128{128, 128, 65536, 64};
inline constexpr AttentionLaunch kAttentionMma256{64, 128, 98304, 64};
inline constexpr AttentionLaunch kAttentionWgmma128{128, 384, 164864, 128};
inline constexpr AttentionLaunch kAttentionWgmma256{128, 384, 197632, 64};

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Arguments of the prompt attention kernels, as host and device see them.
//
// One launch folds the cells [begin, end) into running results: the maximum of a row's scores, the
// sum of its weights, and the weighted sum of V, unscaled, in `out`. The first launch of a chunk
// begins at cell 0, the last one divides. Where launches are cut does not change a bit, so they
// are cut to keep each short.
#pragma once

#include <cstdint>

#include "gpu/kernels.h"

namespace granary::gpu::cuda {

struct RunningRow {
    float maximum;  // of the scores, in units of ln 2
    float sum;
};

struct AttentionPrompt {
    const float* q;       // [n, heads, dim]
    float* out;           // [n, heads, dim]
    RunningRow* running;  // [n, heads]; neither read nor written by a launch that is first and last
    KvView kv;            // f16; a cell's K (and V): [kv_heads, dim]
    uint32_t heads, kv_heads;
    uint32_t n;  // tokens, at cells first_cell ..
    uint32_t first_cell;
    uint32_t begin, end;   // cells of this launch; begin is a multiple of 128
    float scale;           // of q.k, times log2(e)
    uint32_t first, last;  // this launch begins, ends the rows' results
};

// A block has `rows` query rows of one K/V head, a row for each token and query head of its group,
// token by token. Grid: (query_tiles, kv_heads).
constexpr uint32_t query_tiles(uint32_t n, uint32_t group, uint32_t rows) {
    return (n * group + rows - 1) / rows;
}

// K or V of one layer of one conversation as the tensor copy engine sees it: the driver's
// description of [steps][1024 cells][kv_heads][dim] f16 with boxes of 64 dims x `cells` cells,
// rows of 128 bytes swizzled.
struct alignas(64) TensorMap {
    uint64_t opaque[16];
};

// How they are launched: query rows of a block, its threads, bytes of dynamic shared memory, cells
// of a tile (a box of the tensor maps).
struct AttentionLaunch {
    uint32_t rows, threads, shared, cells;
};
inline constexpr AttentionLaunch kAttentionMma128{128, 128, 65536, 64};
inline constexpr AttentionLaunch kAttentionMma256{64, 128, 98304, 64};
inline constexpr AttentionLaunch kAttentionWgmma128{128, 384, 164864, 128};
inline constexpr AttentionLaunch kAttentionWgmma256{128, 384, 197632, 64};

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// The buffers of the attention kernels and how they lie in the scratch memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/host/kv_cells.h"

namespace granary::gpu::host {

inline constexpr uint32_t kLanes = 64;               // query rows of one prompt task
inline constexpr uint32_t kTileCells = 64;           // cells of one tile
inline constexpr uint32_t kSplitCells = kDecodeCut;  // cells of one part of decode attention
inline constexpr uint32_t kDecodeTokens = 8;
inline constexpr uint32_t kDecodeHeads = 8;  // query heads that share one pass over K and V
inline constexpr float kLowest = -1e30f;     // a score that no cell has

// One worker's prompt buffers. Rows of query rows are kLanes wide.
struct PromptBlock {
    uint32_t head_dim;
    uint32_t first_limit;  // cell of limit 0
    float* queries;        // [head_dim][kLanes]
    float* keys;           // [kTileCells][padded_dim]
    float* values;         // [kTileCells][padded_dim]
    float* scores;         // [kTileCells][kLanes]
    float* out;            // [padded_dim][kLanes]
    float* limits;         // [kLanes] last cell that a row sees, less first_limit
    float* maximum;        // [kLanes]
    float* sum;            // [kLanes]
    float* factor;         // [kLanes]
};

inline size_t prompt_floats(uint32_t head_dim) {
    return size_t{padded_dim(head_dim)} * (2 * kLanes + 2 * kTileCells) + kTileCells * kLanes +
           4 * kLanes;
}
inline PromptBlock prompt_block(float* at, uint32_t head_dim) {
    const size_t width = padded_dim(head_dim);
    PromptBlock block{};
    block.head_dim = head_dim;
    const auto take = [&](size_t count) {
        float* taken = at;
        at += count;
        return taken;
    };
    block.queries = take(width * kLanes);
    block.keys = take(width * kTileCells);
    block.values = take(width * kTileCells);
    block.out = take(width * kLanes);
    block.scores = take(kTileCells * kLanes);
    block.limits = take(kLanes);
    block.maximum = take(kLanes);
    block.sum = take(kLanes);
    block.factor = take(kLanes);
    return block;
}

// One worker's decode buffers, for up to kDecodeHeads query heads of one K/V head.
struct DecodeBlock {
    float* queries;  // [kDecodeHeads][padded_dim], scaled
    float* cells;    // [kTileCells][padded_dim]
    float* scores;   // [kDecodeHeads][kSplitCells]
};
inline size_t decode_floats(uint32_t head_dim) {
    return size_t{padded_dim(head_dim)} * (kDecodeHeads + kTileCells) + kDecodeHeads * kSplitCells;
}
inline DecodeBlock decode_block(float* at, uint32_t head_dim) {
    const size_t width = padded_dim(head_dim);
    return {at, at + kDecodeHeads * width, at + (kDecodeHeads + kTileCells) * width};
}

// What a query head got from one split: out[padded_dim] (not yet divided), maximum, sum; padded.
inline size_t partial_floats(uint32_t head_dim) {
    return padded_dim(head_dim) + 16;
}

}  // namespace granary::gpu::host

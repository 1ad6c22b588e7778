// SPDX-License-Identifier: GPL-3.0-or-later
// Arguments of the decode attention kernels, as host and device see them.
//
// A block takes every so many of the cuts of kDecodeCut cells and leaves a partial result of each
// row (one token, one query head): the weighted sum of V, unscaled, with the maximum of the scores
// and the sum of the weights. The last block adds them in their order, or, of formats and heads
// without a kernel of their own, a second kernel, cut by cut. How many blocks share the cuts
// depends on the device and the heads. Where generated tokens go is read from KvView::place, so
// grids are fixed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/kernels.h"

namespace granary::gpu::cuda {

struct AttentionDecode {
    const float* q;    // [n, heads, dim]
    float* values;     // [n, heads, dim]
    std::byte* codes;  // [n] rows of code_row bytes (decode_codes.h); may be null
    size_t code_row;
    float* partials;        // [blocks or cuts]: [rows, dim] sums, then [rows] {maximum, sum}
    size_t partial_floats;  // of each
    uint32_t* finished;     // [K/V heads * tiles] 0 before and after
    KvView kv;
    uint32_t heads, kv_heads, dim;
    uint32_t n;            // tokens of this launch
    uint32_t first_token;  // the first of them stands that many cells after kv.place
    float scale;           // of q.k, times log2(e)
};

// Tokens whose rows share a launch: up to 16 rows of a K/V head meet each cell that is read.
constexpr uint32_t decode_tokens(const AttentionShape& shape) {
    const uint32_t group = shape.heads / shape.kv_heads;
    const uint32_t tokens = 16 / (group < 16 ? group : 16);
    return tokens < 8 ? tokens : 8;
}
// f32 values of a cut's partial results; a multiple of 4.
constexpr size_t decode_partial_floats(const AttentionShape& shape) {
    const size_t rows = size_t{decode_tokens(shape)} * shape.heads;
    return (rows * (shape.head_dim + 2) + 3) / 4 * 4;
}

inline constexpr uint32_t kDecodeThreads = 256;
inline constexpr uint32_t kCombineThreads = 512;
inline constexpr uint32_t kPlainDecodeThreads = 128;
// Bytes of dynamic shared memory of attention_decode_FORMAT_DIM_TILES: rows in tiles of 8.
constexpr uint32_t decode_shared_bytes(uint32_t dim, uint32_t tiles) {
    constexpr uint32_t kWarps = 8, kSlots = 2, kSlot = 4096 + 512;
    return kWarps * kSlots * kSlot + dim / 16 * tiles * 256 + kWarps * 8 * 68 * 4 +
           2 * kWarps * 8 * tiles * 4 + 128;
}
// Of combine: a row of results from each slice of the block, and their sums.
constexpr uint32_t combine_slices(uint32_t dim) {
    return kCombineThreads / (dim / 4);
}
constexpr uint32_t combine_shared_bytes(uint32_t dim) {
    return (combine_slices(dim) * (dim + 1) + 32) * 4;
}

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Arguments of the decode attention kernels, as host and device see them.
//
// Each row (one token, one query head) has its cells cut into parts, and every part leaves a
// partial result: the weighted sum of V, unscaled, with the maximum of the scores and the sum of
// the weights. Parts are what each block has taken, of which so many share the cells as the device
// and the heads say, added up by the last to end in their order; or, of formats and heads without a
// kernel of their own, cuts of kDecodeCut cells, which a second kernel adds up. Where generated
// tokens go is read from KvView::place, so grids are fixed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/kernels.h"

namespace granary::gpu::cuda {

// What rope_store would do, of one token (CudaKernels::turns_itself): its cell is stored by the
// warp that reads it.
struct DecodeTurns {
    // As they come from their matrix, q_stride from head to head; null: AttentionDecode::q has
    // them, turned.
    const float* q;
    const float *k, *v;            // [kv_heads, dim]
    const float *q_norm, *k_norm;  // [dim]; null: none
    uint32_t q_stride, pairs;      // pairs: that turn, 32 or dim / 2
    float eps;
};

struct AttentionDecode {
    const float* q;      // [n, heads, dim]
    const float* pairs;  // [n, heads, 2, dim] queries and gates of what is put out; may be null
    float* values;       // [n, heads, dim]
    std::byte* codes;    // [n] rows of code_row bytes (decode_codes.h); may be null
    size_t code_row;
    float* partials;        // [blocks or cuts]: [rows, dim] sums, then [rows] {maximum, sum}
    size_t partial_floats;  // of each
    uint32_t* finished;     // [teams + 1, rows] 0 before and after
    KvView kv;
    uint32_t heads, kv_heads, dim;
    uint32_t n;            // tokens of this launch
    uint32_t first_token;  // the first of them stands that many cells after kv.place
    float scale;           // of q.k, times log2(e)
    DecodeTurns turns;     // q is not used where these are
};

inline constexpr uint32_t kDecodeThreads = 256;
inline constexpr uint32_t kDecodeTeam = 8;       // blocks whose results are added up together
inline constexpr uint32_t kDecodeNear = 16;      // cells of a warp at a time, in short contexts
inline constexpr uint32_t kDecodeNearTurns = 4;  // so many times a block
inline constexpr uint32_t kDecodePiece = 4096, kDecodeSlots = 2;  // bytes, of a warp
inline constexpr uint32_t kDecodeCounters = 2047, kDecodeMostRows = 512;

// Tokens whose rows share a launch: up to 16 rows of a K/V head meet each cell that is read.
constexpr uint32_t decode_tokens(const AttentionShape& shape) {
    const uint32_t group = shape.heads / shape.kv_heads;
    const uint32_t most = shape.heads < kDecodeMostRows ? kDecodeMostRows / shape.heads : 1;
    const uint32_t tokens = 16 / (group < 16 ? group : 16);
    return tokens < most ? (tokens < 8 ? tokens : 8) : most < 8 ? most : 8;
}
// Blocks that share the cells of a K/V head: as many as one row keeps busy, however many there are,
// and as counters allow: one, which counts nothing, where heads are too many for more.
constexpr uint32_t decode_blocks(const AttentionShape& shape, uint32_t processors) {
    const uint32_t across = shape.kv_heads * ((shape.heads / shape.kv_heads + 7) / 8);
    const uint32_t blocks = 2 * processors / across;
    const uint32_t counted = kDecodeCounters / (decode_tokens(shape) * shape.heads);
    const uint32_t most = counted > 1 ? (counted - 1) * kDecodeTeam : 1;
    return blocks == 0 ? 1 : blocks < most ? blocks : most;
}
// f32 values of a cut's partial results; a multiple of 4.
constexpr size_t decode_partial_floats(const AttentionShape& shape) {
    const size_t rows = size_t{decode_tokens(shape)} * shape.heads;
    return (rows * (shape.head_dim + 2) + 3) / 4 * 4;
}

// Bytes that the partial results of all blocks take, of any number of heads: at most 16 rows of
// 2 processors blocks.
constexpr size_t decode_block_bytes(uint32_t head_dim, uint32_t processors) {
    return size_t{2} * processors * (16 * (head_dim + 2) + 4) * sizeof(float);
}

inline constexpr uint32_t kCombineThreads = 512;
inline constexpr uint32_t kPlainDecodeThreads = 128;
// With scales; without, with room for what a warp leaves of heads of 256 in its slots.
constexpr uint32_t decode_slot_bytes(bool scaled) {
    return kDecodePiece + (scaled ? 512 : 128);
}
// Bytes of dynamic shared memory of attention_decode_FORMAT_DIM_TILES: rows in tiles of 8, codes
// with scales or without.
constexpr uint32_t decode_shared_bytes(uint32_t dim, uint32_t tiles, bool scaled) {
    constexpr uint32_t kWarps = kDecodeThreads / 32;
    const uint32_t rows = 8 * tiles;
    const uint32_t bytes = kWarps * kDecodeSlots * decode_slot_bytes(scaled) +
                           dim / 16 * tiles * 256 + kWarps * rows * 8;
    return (bytes + 127) / 128 * 128;
}
// Of combine: a row of results from each slice of the block, and their sums.
constexpr uint32_t combine_slices(uint32_t dim) {
    return kCombineThreads / (dim / 4);
}
constexpr uint32_t combine_shared_bytes(uint32_t dim) {
    return (combine_slices(dim) * (dim + 1) + 32) * 4;
}

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Arguments of the matrix kernels, as host and device see them: dense matrices and experts, of
// prompts, of decode steps, and the plain ones.
#pragma once

#include <cstdint>

#include "gpu/cuda/delta_net.h"
#include "gpu/cuda/expert_matmul.h"
#include "gpu/cuda/int8_rows.h"
#include "gpu/cuda/ordered_rows.h"
#include "gpu/cuda/router.h"
#include "gpu/kernels.h"

namespace granary::gpu::cuda {

// A set of experts by number.
struct ExpertSet {
    uint32_t word[kMaxExperts / 32];
    // Not -1, which a route has whose expert the processor computes.
    GRANARY_HOST_DEVICE bool has(uint32_t expert) const {
        return expert < kMaxExperts && (word[expert / 32] >> expert % 32 & 1);
    }
};

// ---- plain kernels (matmul_plain.cu): any type and size -----------------------------------------

// Rows as f32 values, or as codes (f16 ordered rows) where those are not null.
struct PlainRows {
    const float* values;     // [rows, cols]
    const std::byte* codes;  // [rows, code_bytes]
    size_t code_bytes;
};
struct PlainMatmul {
    const std::byte* weight;  // [features, row_bytes]
    size_t row_bytes;
    PlainRows in;
    float* out;  // [rows, features]
    uint32_t cols, features;
    WeightType type;
    bool add;
};
struct PlainExperts {
    const ExpertEntry* entries;     // [experts]
    const int32_t *order, *expert;  // order null: as they are
    PlainRows in, hidden;  // hidden: values by route, codes in the order of the sorted routes
    void* out;             // [routes, hidden_size]: f16 where hidden has codes, else f32
    size_t gate_row_bytes, up_row_bytes, down_row_bytes;
    uint32_t used, hidden_size, ffn;
    WeightType gate, up, down;
    ExpertSet list;
};

// ---- decode steps (matvec.cuh): 1 to 8 rows of codes (decode_codes.h) or of values
// ---------------

inline constexpr uint32_t kMatvecRows = 8, kMatvecJobs = 8;
inline constexpr uint32_t kMatvecTile = 16;  // weight rows of a warp
// Blocks of one row have up to kMatvecThreads, kMatvecBlocks of them a multiprocessor; where a
// tile's columns are more than those take, or rows, up to kMatvecSplit warps and half as many.
inline constexpr uint32_t kMatvecThreads = 256, kMatvecBlocks = 3;
inline constexpr uint32_t kMatvecSplit = 16, kMatvecWideThreads = 512;
inline constexpr uint32_t kMatvecShared = 180 << 10;  // dynamic, of a block, at most

// Shared memory of a block beside its stages, of one row and of many: sums, and what the driver
// takes.
inline constexpr uint32_t kMatvecOwn = 3 << 10, kMatvecRowsOwn = 17 << 10;

// How the warps of a block share its work: `split` of them, `most` at most, take the columns of one
// tile, chunk (256 columns) by chunk in turn; `tiles` tiles are the block's group. It depends on
// nothing but the columns and the device.
struct MatvecShape {
    uint32_t split, tiles;
    constexpr uint32_t threads() const { return 32 * split * tiles; }
};
constexpr MatvecShape matvec_shape(uint32_t cols, uint32_t most) {
    const uint32_t chunks = (cols + 255) / 256, turns = (chunks + most - 1) / most;
    const uint32_t split = (chunks + turns - 1) / turns;
    return {split, split < 8 ? 8 / split : 1};
}

// Threads that a block of one row has at least.
inline constexpr uint32_t kLeastMatvecThreads = [] {
    uint32_t least = kMatvecThreads;
    for (uint32_t split = 1; split <= kMatvecThreads / 32; ++split) {
        const uint32_t threads = matvec_shape(split * 256, kMatvecThreads / 32).threads();
        least = threads < least ? threads : least;
    }
    return least;
}();
static_assert(kLeastMatvecThreads >= kMostUsed);  // each may leave a route

// How a chunk of a row lies in shared memory: from the multiple of 16 bytes before it. Types that
// are multiplied by values do not come there: bytes 0.
struct ChunkFormat {
    uint32_t bytes, align;
    GRANARY_HOST_DEVICE constexpr uint32_t pieces() const { return (bytes + 16 - align + 15) / 16; }
    // An odd number of pieces: eight rows lie in different banks.
    GRANARY_HOST_DEVICE constexpr uint32_t stride() const { return (pieces() | 1) * 16; }
    GRANARY_HOST_DEVICE uint32_t shift(const std::byte* chunk) const {
        return align == 16 ? 0 : reinterpret_cast<uintptr_t>(chunk) % 16;
    }
    GRANARY_HOST_DEVICE constexpr uint32_t tile() const {
        return bytes ? kMatvecTile * stride() : 0;
    }
};
GRANARY_HOST_DEVICE constexpr ChunkFormat chunk_format(WeightType type);

// What a block does: groups first, first + blocks, ... With two stages a warp has a chunk of its
// own ahead.
struct MatvecLaunch {
    MatvecShape shape;
    uint32_t inverse_split;  // n * this / 65,536 is n / split, for numbers of warps
    uint32_t stages;
    uint32_t codes_at;  // in shared memory: those of an expert's inner values
};
// What becomes of a product: it is stored, or added to what there was; of one row also on its way
// into a delta net what causal_conv and delta_gates make of it.
enum class MatvecAfter : uint32_t { store, add, convolve, decay, rate };
struct MatvecJob {
    const std::byte* weight;
    float* out;  // [rows, features]
    uint32_t row_bytes, features;
    uint32_t groups;               // of tiles
    uint32_t first_block, blocks;  // of this job among all of the launch
    WeightType type;
    MatvecAfter after;
    const float* by[2];  // convolve: taps [features, kDeltaTaps]; decay: dt and a [features]
    float* tail;         // convolve: [kDeltaTaps - 1, features]
    GRANARY_HOST_DEVICE constexpr bool leads_to_delta_net() const {
        return after > MatvecAfter::add;
    }
};
struct Matvec {
    MatvecJob job[kMatvecJobs];
    uint32_t jobs;
    uint32_t cols, rows;
    const std::byte* x;  // codes [rows, x_bytes]
    uint32_t x_bytes;
    const float* values;  // [rows, cols], of what takes any type
    MatvecLaunch launch;
};

// The matrices of experts that a launch multiplies: gate and up, or down twice.
struct ExpertPart {
    uint32_t row_bytes[2];
    WeightType type[2];
};
// Experts of a decode step: grid (blocks, used, rows). With a shared one, which is of one row and
// as large as the others: gate and up (blocks, used + 2, 1), down (blocks, used + 1, 1).
struct ExpertMatvec {
    const ExpertEntry* entries;
    const int32_t* expert;  // [routes]
    const std::byte* x;     // gate and up: codes [rows, x_bytes]; down: f16 [routes, x_bytes]
    const float* values;    // gate and up of any type: [rows, cols]
    std::byte* out;         // f16 [routes, out_bytes]
    size_t x_bytes, out_bytes;
    uint32_t cols, features, groups, used;
    ExpertPart part[2];  // of the routed ones, and of the shared one
    MatvecLaunch launch;
    bool all;  // the list has every expert
    // The shared one: its matrices, and its gate; where gate and up leave its weight.
    const ExpertEntry* shared;
    const float* gate;  // [cols]
    float* weight;
    ExpertSet list;
    // NAME_late: routes that are still to be chosen, of one row and all experts. Down leaves them,
    // and the experts in `picks`, too.
    RouteChoice choice;
    int32_t* picks;
};

// ---- prompts (matmul_prompt.cu, matmul_prompt_int8.cu)
// -------------------------------------------

inline constexpr uint32_t kPromptRows = 128;  // weight rows of a tile

// Stages of activations and pieces of raw weights that a block has in shared memory. A block has
// 99 KB at most on 8.6, 8.9 and 12.0; 64 KB on 7.5, whose copies are done at once, so that there is
// nothing to be ahead for.
struct PromptBuffers {
    uint32_t stages, raws;
};

// How raw weights of a type pass through shared memory: `cols` columns of a row at a time, which
// begin at any multiple of `align` bytes.
struct PromptFormat {
    uint32_t cols, bytes, align;
    GRANARY_HOST_DEVICE constexpr uint32_t pieces() const { return (bytes + 16 - align + 15) / 16; }
    // An odd number of pieces: eight rows lie in different banks.
    GRANARY_HOST_DEVICE constexpr uint32_t stride() const { return (pieces() | 1) * 16; }
    GRANARY_HOST_DEVICE constexpr uint32_t raw() const { return kPromptRows * stride(); }
    // Stages are 64 columns of f16 each: as far ahead as there is room, and never more than a piece
    // of weights ahead.
    GRANARY_HOST_DEVICE constexpr PromptBuffers buffers(bool before_80) const {
        if (before_80) return {1, 1};
        return {cols > 64 && shared({3, 2}) <= 99 * 1024 ? 3u : 2u, 2};
    }
    GRANARY_HOST_DEVICE constexpr uint32_t shared(PromptBuffers buffers) const {
        return buffers.stages * 128 * kTileRows + buffers.raws * raw() + 1024;
    }
    GRANARY_HOST_DEVICE constexpr uint32_t shared(bool before_80) const {
        return shared(buffers(before_80));
    }
};
// Of types without a loader of their own: read where they lie. cols 0.
GRANARY_HOST_DEVICE constexpr PromptFormat prompt_format(WeightType type) {
    switch (type) {
        case WeightType::q4_k:
            return {256, 144, 16};
        case WeightType::q5_k:
            return {256, 176, 16};
        case WeightType::q6_k:
            return {256, 210, 2};
        case WeightType::iq4_xs:
            return {256, 136, 8};
        case WeightType::q8_0:
            return {128, 4 * 34, 2};
        case WeightType::q5_0:
            return {128, 4 * 22, 2};
        case WeightType::q5_1:
            return {128, 4 * 24, 8};
        case WeightType::q4_0:
        case WeightType::iq4_nl:
            return {128, 4 * 18, 2};
        case WeightType::mxfp4:
            return {128, 4 * 17, 1};
        case WeightType::f16:
        case WeightType::bf16:
            return {64, 128, 16};
        default:
            return {0, 0, 16};
    }
}

// Types that decode steps multiply as integers; all others by values.
constexpr bool is_block_type(WeightType type) {
    return chunk_format(type).bytes > 0;
}

GRANARY_HOST_DEVICE constexpr ChunkFormat chunk_format(WeightType type) {
    const PromptFormat format = prompt_format(type);
    if (format.cols < 128) return {0, 16};
    return {256 / format.cols * format.bytes, format.align};
}

inline constexpr uint32_t kPromptThreads = 128, kPromptBlocks = 2;  // a multiprocessor

struct PromptMatmul {
    // Experts: tiles of sorted routes. Dense: null, and `rows` rows are cut into tiles of 128.
    const ExpertTile* tiles;
    const int32_t* tile_count;
    const ExpertEntry* entries;
    const int32_t* order;
    const std::byte* weight;  // dense
    uint32_t rows, used;
    uint32_t cols, features;  // cols: a multiple of 32
    WeightType type[2];       // gate and up; else the first
    size_t row_bytes[2];
    // f16 ordered rows, or rows of 8-bit codes: of tokens, or for down of the sorted routes.
    const std::byte* x;
    size_t x_bytes;
    void* out;  // gate and up: codes, as sorted; else [rows, features] at row order[i]
    size_t out_bytes;
    bool half_out;  // f16, else f32
    bool add;       // f32 only
    bool int8_out;  // of gate and up by 8-bit products: coarse codes, else f16
};

// ---- 8-bit products of prompts (matmul_prompt_int8.cu) -----------------------------------------

// A stage of activations is 64 bytes of codes of each row (64 columns; with fine codes 32) and
// their scales. Eight rows lie in different banks.
inline constexpr uint32_t kInt8Stride = 80;
struct Int8Format {
    PromptFormat weights;
    // Whether scales are spread out once for 256 columns, and how many bytes of a row those take.
    bool spread;
    static constexpr uint32_t kSpreadStride = 80;
    // Between gate and up and their codes: f32 [routes][64] and padding.
    static constexpr uint32_t kGatedFloats = 68;

    GRANARY_HOST_DEVICE constexpr PromptBuffers buffers(bool before_80) const {
        if (before_80) return {1, 1};
        return {shared({3, 2}) <= 99 * 1024 ? 3u : 2u, 2};
    }
    GRANARY_HOST_DEVICE constexpr uint32_t shared(PromptBuffers buffers) const {
        const uint32_t bytes = buffers.stages * kTileRows * kInt8Stride +
                               buffers.raws * weights.raw() +
                               (spread ? kPromptRows * kSpreadStride : 0) + 1024;
        const uint32_t gated = kTileRows * kGatedFloats * 4 + 1024;
        return bytes > gated ? bytes : gated;
    }
    GRANARY_HOST_DEVICE constexpr uint32_t shared(bool before_80) const {
        return shared(buffers(before_80));
    }
};
GRANARY_HOST_DEVICE constexpr Int8Format int8_format(WeightType type) {
    return {prompt_format(type), type != WeightType::q8_0};
}

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Matrix products of decode steps: 1 to 8 rows of activations, every weight read once.
//
// Bytes decide, and their latency: 11 MB of Q8_0 are 2.8 us at 3.9 TB/s if all 84 KB of a
// multiprocessor are under way at once. So all of a matrix's blocks run at once, and each warp
// begins by copying its first chunks (16 weight rows x 256 columns) to shared memory; where the
// weights are known, before the activations are there (early.cuh). It multiplies them as integers,
// four at a time (dp4a), by activations of 8 or 12 bits (decode_codes.h): about one instruction a
// weight, with what brings its bits to where they can be used. A row's result cannot depend on the
// others. The warps that share a tile's columns add up their sums in their order.
//
// 16,384 x 2,048 of Q4_K (19 MB) takes 8.0 us, of Q6_K (28 MB) 11.1, of Q8_0 (36 MB) 11.9; 151,936
// x 2,048 of Q6_K 80.6, 3.2 TB/s (H200, calls in a row). Of small matrices what a tile costs beside
// its weights decides: 500 instructions of a warp, one after the other.
//
// Types that are no blocks, and those without code of their own, are multiplied in f32 by the
// activations' values. matvec.cu has the kernels of dense matrices, expert_matvec.cu those of
// experts.
#pragma once

#include "gpu/cuda/decode_codes.cuh"
#include "gpu/cuda/early.cuh"
#include "gpu/cuda/lane_groups.cuh"
#include "gpu/cuda/matmul.h"
#include "gpu/cuda/portable.h"
#include "gpu/cuda/read_once.cuh"
#include "gpu/cuda/rows.cuh"

namespace granary::gpu::cuda {
namespace {

// A matrix, or two side by side, as tiles: rows g of a tile's low half, and of its high half.
struct Tiles {
    const std::byte *low, *high;  // row 0 of each
    uint32_t low_bytes, high_bytes, rows;
    uint32_t per_tile;   // rows from tile to tile: 16 of one matrix, 8 of each of two
    uint32_t high_from;  // from a low row to its high one
    uint32_t cols;
    uint32_t group, step, groups;  // the block's first group of tiles, the next, the end

    // Row r, 0 .. 15, of tile `tile`, `from` bytes on; rows past the end repeat the last.
    __device__ __forceinline__ const std::byte* at(uint32_t tile, uint32_t r, bool is_high,
                                                   uint32_t from) const {
        const uint32_t row = tile * per_tile + r % 8;
        // Products of 32 bits are one instruction.
        return !is_high ? low + from + uint64_t{min(row, rows - 1)} * low_bytes
                        : high + from + uint64_t{min(row + high_from, rows - 1)} * high_bytes;
    }
    // Its address as far as it decides about alignment.
    __device__ __forceinline__ uint32_t low_bits(uint32_t tile, uint32_t r, bool is_high,
                                                 uint32_t from) const {
        const uint32_t row = tile * per_tile + r % 8;
        return !is_high ? address_bits(low) + from + min(row, rows - 1) * low_bytes
                        : address_bits(high) + from + min(row + high_from, rows - 1) * high_bytes;
    }
    __device__ __forceinline__ static uint32_t address_bits(const std::byte* pointer) {
        return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(pointer));
    }
};

// ---- a thread's part of a chunk: 64 columns of a low and of a high row
//
// Of each kind: kRows, activation rows at most; kFormat, how chunks lie in shared memory, or bytes
// 0; add(sum, low, high, chunk), where low and high are the rows' chunk there, or else the rows.

// Sums of four products: bytes of `code` are signed or not, those of x are.
template <bool kUnsigned>
__device__ __forceinline__ int dot_four(uint32_t code, uint32_t x, int sum) {
    if constexpr (kUnsigned) {
        int result;
        asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(code), "r"(x), "r"(sum));
        return result;
    }
    return __dp4a(static_cast<int>(code), static_cast<int>(x), sum);
}

template <CodeKind kKind, bool kFine>
__device__ __forceinline__ void add_group(float& sum, const uint32_t (&code)[8],
                                          const GroupScales& scales, const DecodeColumns& x) {
    constexpr uint32_t kParts = kKind.two_scales ? 2 : 1;
    float product = 0;
#pragma unroll
    for (uint32_t part = 0; part < kParts; ++part) {
        int coarse = 0, fine = 0;
#pragma unroll
        for (uint32_t k = part * 8 / kParts; k < (part + 1) * 8 / kParts; ++k) {
            coarse = dot_four<kKind.is_unsigned>(code[k], x.coarse[k], coarse);
            if (kFine) fine = dot_four<kKind.is_unsigned>(code[k], x.fine[k], fine);
        }
        const auto total = static_cast<float>(kFine ? coarse * 256 + fine : coarse);
        product = part == 0 ? scales.scale[0] * total : fmaf(scales.scale[part], total, product);
    }
    sum = fmaf(product, x.scale, sum);
    if (kKind.minimum) sum = fmaf(-scales.minimum, x.sum, sum);
}

template <WeightType kType, uint32_t kMostRows, bool kFine>
struct Blocks {
    using Groups = LaneGroups<kType>;
    static constexpr uint32_t kRows = kMostRows;
    static constexpr ChunkFormat kFormat = chunk_format(kType);
    static_assert(kFormat.bytes == Groups::kChunkBytes);
    const std::byte* x;  // codes of the first row
    uint32_t x_bytes, rows, groups;
    // Of one row: what this thread has of it, which often serves one tile after the other.
    uint32_t kept_chunk = ~0u;
    DecodeColumns kept[kRows == 1 ? 2 : 1] = {};

    // A thread's two groups of a row of weights: groups past the end weigh nothing.
    struct Row {
        typename Groups::Raw raw;
        GroupScales scales[2];

        __device__ __forceinline__ Row(const std::byte* chunk, uint32_t first_group,
                                       uint32_t groups)
            : raw(Groups::load(chunk, threadIdx.x % 4)) {
            Groups::scales(raw, threadIdx.x % 4, scales);
            if constexpr (!Groups::kWhole)
#pragma unroll
                for (uint32_t j = 0; j < 2; ++j)
                    if (first_group + Groups::group(threadIdx.x % 4, j) >= groups)
                        scales[j].scale[0] = scales[j].minimum = 0;
        }
    };
    __device__ __forceinline__ DecodeColumns columns(uint32_t row, uint32_t group) const {
        const auto* const all = reinterpret_cast<const DecodeGroup*>(x + row * x_bytes);
        return DecodeColumns::load<kFine>(all[Groups::kWhole ? group : min(group, groups - 1)]);
    }

    __device__ __forceinline__ void add(float (&sum)[kRows][2], const std::byte* low,
                                        const std::byte* high, uint32_t chunk) {
        constexpr CodeKind kKind = Groups::kKind;
        const uint32_t t = threadIdx.x % 4;
        if constexpr (kRows == 1) {
            // Activations first: they come from the L2 cache.
            if (chunk != kept_chunk) {
                kept[0] = columns(0, chunk * 8 + Groups::group(t, 0));
                kept[1] = columns(0, chunk * 8 + Groups::group(t, 1));
                kept_chunk = chunk;
            }
            // One code for both, which is brought once: what a step's kernels run in a layer is
            // about what a multiprocessor keeps of code (128 KB), and a warp runs it a few times.
#pragma unroll 1
            for (uint32_t half = 0; half < 2; ++half) {
                const Row weights(half ? high : low, chunk * 8, groups);
                float mine = half ? sum[0][1] : sum[0][0];
#pragma unroll
                for (uint32_t j = 0; j < 2; ++j) {
                    uint32_t code[8];
                    Groups::codes(weights.raw, t, j, code);
                    add_group<kKind, kFine>(mine, code, weights.scales[j], kept[j]);
                }
                (half ? sum[0][1] : sum[0][0]) = mine;
            }
        } else {
            const Row of_low(low, chunk * 8, groups), of_high(high, chunk * 8, groups);
#pragma unroll
            for (uint32_t j = 0; j < 2; ++j) {
                uint32_t code[2][8];
                Groups::codes(of_low.raw, t, j, code[0]);
                Groups::codes(of_high.raw, t, j, code[1]);
#pragma unroll
                for (uint32_t row = 0; row < kRows; ++row) {
                    if (row >= rows) break;
                    const DecodeColumns of = columns(row, chunk * 8 + Groups::group(t, j));
                    add_group<kKind, kFine>(sum[row][0], code[0], of_low.scales[j], of);
                    add_group<kKind, kFine>(sum[row][1], code[1], of_high.scales[j], of);
                }
            }
        }
    }
};

__device__ __forceinline__ void load_values(const float* row, uint32_t octet, float (&v)[8]) {
    load_octet(row, octet, octet * 8 + 8, v);
}
__device__ __forceinline__ void load_values(const __half* row, uint32_t octet, float (&v)[8]) {
    const uint4 words = reinterpret_cast<const uint4*>(row)[octet];
    const uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        const float2 pair = __half22float2(as_half2(pairs[i]));
        v[2 * i] = pair.x, v[2 * i + 1] = pair.y;
    }
}

// Weights of any type, where they lie, times values. kType: f16, bf16, or f32 for any.
template <WeightType kType, class Value>
struct AnyType {
    static constexpr uint32_t kRows = kMatvecRows;
    static constexpr ChunkFormat kFormat{0, 16};
    const Value* x;  // [rows] of x_values each
    size_t x_values;
    uint32_t rows, cols;
    WeightType low_type, high_type;

    // 16-bit floats come as one load each, several of them under way.
    __device__ __forceinline__ void weights(WeightType type, const std::byte* row, uint32_t octet,
                                            float (&w)[8]) const {
        if constexpr (kType == WeightType::f16) {
            load_values(reinterpret_cast<const __half*>(row), octet, w);
        } else if constexpr (kType == WeightType::bf16) {
            const uint4 words = reinterpret_cast<const uint4*>(row)[octet];
            const uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) {
                w[2 * i] = __uint_as_float(pairs[i] << 16);
                w[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
            }
        } else {
            decode_octet(type, row, octet, cols, w);
        }
    }
    __device__ __forceinline__ void add(float (&sum)[kRows][2], const std::byte* low,
                                        const std::byte* high, uint32_t chunk) const {
        // The four threads of a row take octets side by side.
#pragma unroll 4
        for (uint32_t i = 0; i < 8; ++i) {
            const uint32_t octet = chunk * 32 + 4 * i + threadIdx.x % 4;
            if (octet * 8 >= cols) continue;
            float of_low[8], of_high[8];
            weights(low_type, low, octet, of_low);
            weights(high_type, high, octet, of_high);
#pragma unroll
            for (uint32_t row = 0; row < kRows; ++row) {
                if (row >= rows) break;
                float v[8];
                load_values(x + row * x_values, octet, v);
#pragma unroll
                for (uint32_t k = 0; k < 8; ++k) {
                    sum[row][0] = fmaf(of_low[k], v[k], sum[row][0]);
                    sum[row][1] = fmaf(of_high[k], v[k], sum[row][1]);
                }
            }
        }
    }
};

// ---- tiles

// Sums of the 16 weight rows of a tile from each warp, of two tiles in turn.
template <uint32_t kRows, uint32_t kSplit>
using Parts = float[2][kSplit][kRows][kMatvecTile];

// For each tile of the block's groups, by the tile's first warp: finish.begin(tile), then
// finish.end(tile, total), where total(row, r) is the tile's weight row r times an activation row.
// Once the kernels ahead have ended it calls work(), which gives what multiplies.
template <class Product, uint32_t kSplit, class Work, class Finish>
__device__ __forceinline__ void multiply(const Tiles& tiles, const MatvecLaunch& launch,
                                         std::byte* memory, Parts<Product::kRows, kSplit>& part,
                                         const Work& work, Finish&& finish) {
    constexpr ChunkFormat kFormat = Product::kFormat;
    constexpr bool kStaged = kFormat.bytes > 0;
    constexpr uint32_t kRows = Product::kRows;
    constexpr uint32_t kPieces = kFormat.pieces(), kStride = kFormat.stride();
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4;
    const uint32_t split = launch.shape.split;
    const uint32_t number = warp * launch.inverse_split >> 16;  // warp / split
    const uint32_t first = warp - number * split;
    const uint32_t chunks = (tiles.cols + 255) / 256;
    const auto tile_of = [&](uint32_t group) { return group * launch.shape.tiles + number; };
    std::byte* const mine = memory + warp * launch.stages * kFormat.tile();

    const ReadOnce once;
    // Four rows at a time, eight lanes a row.
    const uint32_t lane_byte = lane % 8 * 16;
    const uint32_t to_lane = shared_address(mine) + lane / 8 * kStride + lane_byte;
    uint32_t next_group = tiles.group, next_chunk = first;
    const auto bring = [&](uint32_t stage) {
        if constexpr (kStaged) {
            if (next_group < tiles.groups) {
                const uint32_t to = to_lane + stage * kFormat.tile();
                const uint32_t tile = tile_of(next_group), from = next_chunk * kFormat.bytes;
                const uint32_t left = min(kFormat.bytes, tiles.low_bytes - from);
#pragma unroll
                for (uint32_t i = 0; i < kMatvecTile; i += 4) {
                    const std::byte* row = tiles.at(tile, i + lane / 8, i >= kMatvecTile / 2, from);
                    const uint32_t shift = kFormat.shift(row);
                    const int count = static_cast<int>(shift + left - lane_byte);
                    row = row - shift + lane_byte;
#pragma unroll
                    for (uint32_t piece = 0; piece < kPieces; piece += 8)
                        if (static_cast<int>(piece * 16) < count)
                            once.copy_16(to + i * kStride + piece * 16, row + piece * 16);
                }
                next_chunk += split;
                if (next_chunk >= chunks) {
                    next_chunk = first;
                    next_group += tiles.step;
                }
            }
            copies_commit();
        }
    };
    for (uint32_t stage = 0; stage < launch.stages; ++stage) bring(stage);
    wait_for_kernels_ahead();
    Product product = work();

    uint32_t stage = 0, turn = 0;
    for (uint32_t group = tiles.group; group < tiles.groups; group += tiles.step) {
        const uint32_t tile = tile_of(group);
        if (first == 0) finish.begin(tile);
        float sum[kRows][2] = {};
        for (uint32_t chunk = first; chunk < chunks; chunk += split) {
            if constexpr (kStaged) {
                if (launch.stages > 1)
                    copies_wait<1>();
                else
                    copies_wait<0>();
                __syncwarp();
                const std::byte* here = mine + stage * kFormat.tile() + g * kStride;
                const auto shift = [&](bool is_high) {
                    return kFormat.align == 16
                               ? 0
                               : tiles.low_bits(tile, g, is_high, chunk * kFormat.bytes) % 16;
                };
                product.add(sum, here + shift(false), here + 8 * kStride + shift(true), chunk);
                __syncwarp();
                bring(stage);
                stage = stage + 1 < launch.stages ? stage + 1 : 0;
            } else {
                product.add(sum, tiles.at(tile, g, false, 0), tiles.at(tile, g, true, 0), chunk);
            }
        }
#pragma unroll
        for (uint32_t row = 0; row < kRows; ++row)
#pragma unroll
            for (uint32_t half = 0; half < 2; ++half) {
                float& value = sum[row][half];
                value += __shfl_xor_sync(~0u, value, 1);
                value += __shfl_xor_sync(~0u, value, 2);
                if (lane % 4 == half) part[turn][warp][row][g + 8 * half] = value;
            }
        __syncthreads();
        if (first == 0)
            finish.end(tile, [&](uint32_t row, uint32_t r) {
                float all = part[turn][warp][row][r];
#pragma unroll
                for (uint32_t i = 1; i < kSplit; ++i)
                    if (i < split) all += part[turn][warp + i][row][r];
                return all;
            });
        turn ^= 1;
    }
}

#define GRANARY_BLOCK_TYPES(CASE) \
    CASE(q4_k)                    \
    CASE(q5_k)                    \
    CASE(q6_k)                    \
    CASE(q8_0)                    \
    CASE(q5_0)                    \
    CASE(q5_1)                    \
    CASE(q4_0)                    \
    CASE(iq4_xs)                  \
    CASE(iq4_nl)                  \
    CASE(mxfp4)

// Blocks of `type`, which is one of those with code of their own. codes(): of the first row, called
// once the kernels ahead have ended.
template <uint32_t kRows, uint32_t kSplit, bool kFine, class Codes, class Finish>
__device__ __forceinline__ void multiply_blocks(WeightType type, const Tiles& tiles,
                                                const MatvecLaunch& launch, uint32_t x_bytes,
                                                uint32_t rows, std::byte* memory,
                                                const Codes& codes, Finish&& finish) {
    __shared__ Parts<kRows, kSplit> part;
    switch (type) {
#define GRANARY_CASE(name)                                               \
    case WeightType::name: {                                             \
        using Product = Blocks<WeightType::name, kRows, kFine>;          \
        multiply<Product>(                                               \
            tiles, launch, memory, part,                                 \
            [&] {                                                        \
                return Product{codes(), x_bytes, rows, tiles.cols / 32}; \
            },                                                           \
            finish);                                                     \
        break;                                                           \
    }
        GRANARY_BLOCK_TYPES(GRANARY_CASE)
#undef GRANARY_CASE
        default:  // the host asks for the other kernel
            __trap();
    }
}
template <class Value, class Finish>
__device__ __forceinline__ void multiply_any(const WeightType (&type)[2], const Tiles& tiles,
                                             const MatvecLaunch& launch, const Value* x,
                                             size_t x_values, uint32_t rows, Finish&& finish) {
    __shared__ Parts<kMatvecRows, kMatvecSplit> part;
    const auto of_type = [&]<WeightType kType>() {
        using Product = AnyType<kType, Value>;
        multiply<Product>(
            tiles, launch, nullptr, part,
            [&] { return Product{x, x_values, rows, tiles.cols, type[0], type[1]}; }, finish);
    };
    if (type[0] == WeightType::f16 && type[1] == WeightType::f16)
        of_type.template operator()<WeightType::f16>();
    else if (type[0] == WeightType::bf16 && type[1] == WeightType::bf16)
        of_type.template operator()<WeightType::bf16>();
    else
        of_type.template operator()<WeightType::f32>();
}

#define GRANARY_BOUNDS __launch_bounds__(kMatvecThreads, kMatvecBlocks)
#define GRANARY_WIDE_BOUNDS __launch_bounds__(kMatvecWideThreads, 1)

}  // namespace
}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// What the matrix products of prompts share, whatever they multiply with: which rows of which
// matrix a block multiplies by which rows of activations, raw weights on their way to shared
// memory, and results on theirs to global memory.
//
// A tile is 128 weight rows (of an expert's gate and up: 64 of each) x up to 128 activation rows.
// Four warps lie along the weight rows, 32 each; a thread has results of rows g and g + 8 of each
// 16, or of gate and up of one feature, for activation rows 2t and 2t + 1 of each eight, as
// mma_16x8x16 leaves them.
#pragma once

#include "gpu/cuda/matmul.h"
#include "gpu/cuda/mma.cuh"

namespace granary::gpu::cuda {

inline constexpr uint32_t kGatedStride = 144;  // bytes of 64 f16 results of a route and padding

template <WeightType kType, bool kGateUp, uint32_t kThreads>
struct PromptTile {
    static constexpr PromptFormat kFormat = prompt_format(kType);
    static constexpr uint32_t kFeatures = kGateUp ? kPromptRows / 2 : kPromptRows;
    // The row of a tile that makes a thread's high results follows that of the low ones by so many.
    static constexpr uint32_t kHigh = kGateUp ? kFeatures : 8;

    const PromptMatmul& job;
    const uint32_t thread = threadIdx.x, lane = thread % 32, warp = thread / 32 % 4;
    const uint32_t g = lane / 4, t = lane % 4;
    const std::byte *low_matrix = nullptr, *high_matrix = nullptr;  // gate, up; or the same
    ExpertTile tile = {};
    uint32_t feature = 0;  // the first of the tile

    __device__ explicit PromptTile(const PromptMatmul& matmul) : job(matmul) {}

    __device__ uint32_t across() const { return (job.features + kFeatures - 1) / kFeatures; }
    __device__ uint32_t tiles() const {
        const uint32_t down = job.tiles ? static_cast<uint32_t>(*job.tile_count)
                                        : (job.rows + kTileRows - 1) / kTileRows;
        return down * across();
    }
    __device__ void choose(uint32_t number) {
        feature = number % across() * kFeatures;
        number /= across();
        if (job.tiles) {
            tile = job.tiles[number];
            const ExpertEntry entry = job.entries[tile.expert];
            low_matrix = kGateUp ? entry.gate : entry.down;
            high_matrix = kGateUp ? entry.up : entry.down;
        } else {
            const uint32_t first = number * kTileRows;
            tile = {0, static_cast<int32_t>(first),
                    static_cast<int32_t>(min(job.rows - first, kTileRows)), 0};
            low_matrix = high_matrix = job.weight;
        }
    }
    // Where row `row` of the tile's activations comes from and where its results go; rows past the
    // last repeat that.
    struct Rows {
        uint32_t in, out;
    };
    __device__ Rows rows_of(uint32_t row) const {
        const uint32_t place = tile.first + min(row, tile.rows - 1u);
        const uint32_t route = job.tiles ? job.order[place] : place;
        return {kGateUp ? route / job.used : place, route};
    }

    // The row of a matrix that row `row` of the tile is.
    __device__ __forceinline__ const std::byte* weight_row(uint32_t row) const {
        const uint32_t number = min(feature + row % kFeatures, job.features - 1);
        return kGateUp && row >= kFeatures ? high_matrix + number * job.row_bytes[1]
                                           : low_matrix + number * job.row_bytes[0];
    }
    // Begins the copy of piece `number` of the tile's weight rows. Of rows that there are: a tile
    // at a matrix's end leaves the others as they were.
    __device__ __forceinline__ void bring_weights(std::byte* raw, uint32_t number) const {
        const size_t begin = size_t{number} * kFormat.bytes;
        const uint32_t to = shared_address(raw);
        const uint32_t rows = min(job.features - feature, kFeatures);
        const size_t at = feature * job.row_bytes[0] + begin;
        const auto bytes =
            static_cast<uint32_t>(min(size_t{kFormat.bytes}, job.row_bytes[0] - begin));
        copy_rows(to, low_matrix + at, rows, bytes);
        if constexpr (kGateUp)
            copy_rows(to + kFeatures * kFormat.stride(), high_matrix + at, rows, bytes);
    }

    // Where the low results of the warp's products `m` lie in a row of the tile.
    __device__ uint32_t low_place(uint32_t m) const {
        return kGateUp ? warp * 16 + m * 8 + g : warp * 32 + m * 16 + g;
    }

    __device__ static float gated(float gate, float up) {
        return __fdividef(gate, 1 + __expf(-gate)) * up;
    }
    // From rows of kGatedStride bytes at `from`, columns as they are: 128 bytes a route.
    __device__ __forceinline__ void copy_gated(const std::byte* from) const {
        const uint32_t pieces = min(job.features - feature, kFeatures) / 8;
        auto* to = static_cast<std::byte*>(job.out) + tile.first * job.out_bytes + feature * 2;
        for (uint32_t i = thread; i < tile.rows * 8u; i += kThreads)
            if (i % 8 < pieces)
                *reinterpret_cast<uint4*>(to + i / 8 * job.out_bytes + i % 8 * 16) =
                    *reinterpret_cast<const uint4*>(from + i / 8 * kGatedStride + i % 8 * 16);
    }

    // Results of the activation rows from `first` on, f16 or f32: 32 bytes of f32, a whole sector,
    // of four rows an instruction.
    template <bool kHalf, uint32_t kOctets>
    __device__ __forceinline__ void store_rows(const float (&sum)[2][kOctets][4], uint32_t first,
                                               const uint32_t* out_row) const {
        const bool whole = feature + kFeatures <= job.features;
        const uint32_t begin = feature + low_place(0);
#pragma unroll
        for (uint32_t octet = 0; octet < kOctets; ++octet)
#pragma unroll
            for (uint32_t i = 0; i < 2; ++i) {
                const uint32_t column = first + octet * 8 + t * 2 + i;
                if (column >= tile.rows) continue;
                const size_t at = size_t{out_row[column]} * job.features + begin;
#pragma unroll
                for (uint32_t m = 0; m < 2; ++m) {
                    const float low = sum[m][octet][i], high = sum[m][octet][2 + i];
                    const bool has_low = whole || begin + m * 16 < job.features;
                    const bool has_high = whole || begin + m * 16 + 8 < job.features;
                    if constexpr (kHalf) {
                        const __half2 both = as_half2(pack_half2(low, high));
                        auto* const to = static_cast<__half*>(job.out) + at + m * 16;
                        if (has_low) to[0] = __low2half(both);
                        if (has_high) to[8] = __high2half(both);
                    } else {
                        float* const to = static_cast<float*>(job.out) + at + m * 16;
                        if (has_low) to[0] = job.add ? to[0] + low : low;
                        if (has_high) to[8] = job.add ? to[8] + high : high;
                    }
                }
            }
    }

  private:
    __device__ __forceinline__ void copy_rows(uint32_t to, const std::byte* from, uint32_t rows,
                                              uint32_t bytes) const {
        constexpr uint32_t kPieces = kFormat.pieces(), kAtOnce = kThreads / kPieces;
        const uint32_t row = thread / kPieces, piece = thread % kPieces;
        if (row >= kAtOnce) return;
        from += row * job.row_bytes[0];
        to += row * kFormat.stride() + piece * 16;
        const size_t step = kAtOnce * job.row_bytes[0];
#pragma unroll 4
        for (uint32_t i = row; i < rows; i += kAtOnce) {
            const auto address = reinterpret_cast<uintptr_t>(from);
            const auto* aligned = reinterpret_cast<const std::byte*>(address & ~uintptr_t{15});
            if (piece * 16 < address % 16 + bytes) copy_16(to, aligned + piece * 16);
            from += step;
            to += kAtOnce * kFormat.stride();
        }
    }
};

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// The 8-bit matrix product. Sixteen weight rows are unpacked to a tile whose vectors hold four
// columns of all sixteen rows; a tile then meets any number of activation rows. Each output is
// summed group by group, in column order, by the same instructions whatever the number of rows:
//   acc = fma(weight_scale * activation_scale, integer dot of the group, acc)
//   acc = fma(-weight_minimum, activation_sum, acc)          formats with a minimum
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu/host/decode.h"
#include "gpu/kernels.h"

namespace granary::gpu::host {

inline constexpr uint32_t kTileRows = 16;
inline constexpr uint32_t kPanelCols = 512;  // columns unpacked at a time: 12 KiB, in L1

// Sixteen rows times up to kPanelCols columns. Scales (and minimums) stand for 32 columns, or for
// 16 where the format's halves differ.
struct alignas(64) Tile {
    uint8_t codes[kPanelCols / 4][kTileRows][4];
    float scale[kPanelCols / 16][kTileRows];
    float minimum[kPanelCols / 16][kTileRows];
};

struct TileWeights {
    WeightType type;
    const BlockFormat* format;
    const std::byte* row;  // the first of the tile's rows
    size_t row_bytes;
    uint32_t rows;  // 1 to 16; a short tile repeats its last row
};

struct TileKernels {
    const char* name;  // "AVX-512 VNNI"
    // Unpacks groups [first_group, first_group + groups) of the rows.
    void (*unpack)(const TileWeights& weights, uint32_t first_group, uint32_t groups, Tile* tile);
    // out[i * stride + r] (+)= dot(tile row r, activation row i) for r < rows, over
    // groups [first_group, first_group + groups) of the activation rows.
    void (*dot)(const BlockFormat& format, const Tile& tile, uint32_t first_group, uint32_t groups,
                std::span<const std::byte* const> activations, float* out, size_t stride,
                uint32_t rows, bool add);
};

// Best first; the last is portable.
std::span<const TileKernels* const> tile_kernels();

extern const TileKernels kTilePortable;
#if defined(__x86_64__)
extern const TileKernels kTileAvx2;
extern const TileKernels kTileAvxVnni;
extern const TileKernels kTileAvx512;
#endif

// The unpacking of any format, one group after another.
void unpack_any(const TileWeights& weights, uint32_t first_group, uint32_t groups, Tile* tile);

}  // namespace granary::gpu::host

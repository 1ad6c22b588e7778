// SPDX-License-Identifier: GPL-3.0-or-later
// Products of weight rows with activation rows, the common part of matmul, experts and router.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu/host/tile.h"
#include "gpu/kernels.h"

namespace granary::gpu::host {

inline constexpr uint32_t kDecodedCols = 2048;  // columns decoded to f32 at a time
inline constexpr uint32_t kBlockRows = 256;     // activation rows that one block of work takes

// One worker's buffers.
struct alignas(64) Workspace {
    union {
        Tile tile;
        float decoded[4][kDecodedCols];
    };
    alignas(64) float gate[kBlockRows][kGroup];
    alignas(64) float up[kBlockRows][kGroup];
    const std::byte* codes[kBlockRows];
    const float* values[kBlockRows];
};

// Up to kBlockRows rows of activations, anywhere in memory.
struct InputRows {
    std::span<const float* const> values;
    std::span<const std::byte* const> codes;  // empty in f32 arithmetic
    uint32_t cols = 0;
    bool fine = false;  // all 16 bits of the codes, not the first 8
};

// out[i * stride + j] (+)= dot(weight row first + j, input row i) for j < rows <= 16.
void multiply(const TileKernels& kernels, const Weight& weight, uint32_t first, uint32_t rows,
              const InputRows& in, float* out, size_t stride, bool add, Workspace& work);

// out[i * stride + j] (+)= dot(weights[j], inputs[i]) over cols values; j < weights.size() <= 4.
void dot_f32(std::span<const float* const> weights, std::span<const float* const> inputs,
             size_t first_col, size_t cols, float* out, size_t stride, bool add);

}  // namespace granary::gpu::host

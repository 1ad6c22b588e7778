// SPDX-License-Identifier: GPL-3.0-or-later
// How the kernels of norm_decode.cu are launched, as host and device see it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/cuda/ordered_rows.h"

namespace granary::gpu::cuda {

inline constexpr uint32_t kNormThreads = 512;
inline constexpr uint32_t kRowBlocks = 8;  // that share a row
// Quads (four columns) of a row that a block leaves: whole groups of codes.
GRANARY_HOST_DEVICE constexpr uint32_t row_block_quads(uint32_t cols) {
    return ((cols + 31) / 32 + kRowBlocks - 1) / kRowBlocks * 8;
}

// sum = x + what the experts of its routes put out, then norm of that, of rows of a decode step.
struct CombineNorm {
    const float* route_weights;  // [rows, used]
    uint32_t used;               // 0: nothing is added
    uint32_t cols;
    const void* out;      // f16 or f32 [rows * used, cols]
    const float* x;       // [rows, cols]
    float* sum;           // [rows, cols]; null: not stored, where nothing is added
    const float* weight;  // [cols]; may be null
    float eps;
    float* values;     // [rows, cols]; may be null
    std::byte* codes;  // [rows]; may be null. Both null: there is no norm, and sum may be x
};

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Dense matrices of prompts on compute capability 9.0a: weights of any type are widened to f16 once
// a call (matmul_widen.cu), in the layout of the tensor cores' operand, and multiplied as such
// (matmul_dense_wgmma.cu). Several jobs that share an input are one launch of each.
#pragma once

#include <cstdint>

#include "gpu/cuda/ordered_rows.h"
#include "gpu/weight_type.h"

namespace granary::gpu::cuda {

// Activation rows and weight rows of a tile; columns of a step.
inline constexpr uint32_t kDenseRows = 128, kDenseFeatures = 256, kDenseCols = 64;
// Widened weights: [tiles][steps] of these, rows of 128 bytes swizzled.
inline constexpr uint32_t kDenseStepBytes = kDenseFeatures * kDenseCols * 2;
inline constexpr uint32_t kDenseJobs = 8;

// Weight rows of one matrix.
struct DenseJob {
    const std::byte* weight;  // the first
    float* out;               // of row 0: where the result of the first one goes
    size_t row_bytes;
    uint32_t stride;      // features of a row of out
    uint32_t features;    // of this job
    uint32_t first_tile;  // of this job in the launch; a job has whole tiles
    WeightType type;
    bool add;  // out += instead of out =
};
struct DenseMatmul {
    DenseJob job[kDenseJobs];
    uint32_t jobs, tiles;  // tiles of features
    uint32_t rows, cols;   // cols: a multiple of 32
    std::byte* wide;       // [tiles][steps] of kDenseStepBytes

    GRANARY_HOST_DEVICE uint32_t steps() const { return (cols + kDenseCols - 1) / kDenseCols; }
    GRANARY_HOST_DEVICE const DenseJob& of_tile(uint32_t tile) const {
        uint32_t i = 0;
        while (i + 1 < jobs && tile >= job[i + 1].first_tile) ++i;
        return job[i];
    }
};

// A block widens kWidenRows weight rows x 256 columns. Grid: (columns / 256, rows of all tiles).
inline constexpr uint32_t kDenseWidenRows = 64, kDenseWidenThreads = 256;
// A block a multiprocessor walks over tiles; the activations are a tensor map of [rows][cols] f16
// with boxes of kDenseRows x kDenseCols, swizzled.
inline constexpr uint32_t kDenseThreads = 384, kDenseShared = 197632;

}  // namespace granary::gpu::cuda

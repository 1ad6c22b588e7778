// SPDX-License-Identifier: GPL-3.0-or-later
// Rows of activations as 8-bit codes, for prompts' products of integers (matmul_prompt_int8.cu).
// The rule is the host's (gpu/host/codes.h): for each 32 columns one scale, max|x| / 127, and code
// = rint(x / scale). Experts see these coarse codes only; dense matrices also the fine ones of what
// is left over, in steps of scale / 254.
//
// A row: for each 32 columns their coarse codes, then where there are any their fine ones, columns
// in their own order; behind all of them an Int8Scale for each 32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/cuda/ordered_rows.h"

namespace granary::gpu::cuda {

struct Int8Scale {
    float scale;
    float sum;  // scale * (sum of the coarse codes + sum of the fine ones / 254)
};
inline constexpr float kFineSteps = 254;

// Bytes of a row's codes, and of the row, a multiple of 16. Coarse rows are shorter than those of
// f16 codes.
GRANARY_HOST_DEVICE constexpr uint32_t int8_code_bytes(uint32_t cols, bool fine) {
    return (cols + 31) / 32 * (fine ? 64 : 32);
}
GRANARY_HOST_DEVICE constexpr uint32_t int8_row_bytes(uint32_t cols, bool fine) {
    return int8_code_bytes(cols, fine) +
           ((cols + 31) / 32 * uint32_t{sizeof(Int8Scale)} + 15) / 16 * 16;
}

// To make them: a thread for each 32 columns of a row, in blocks of kInt8Threads.
inline constexpr uint32_t kInt8Threads = 256;
struct Int8Rows {
    const std::byte* from;  // f16 ordered rows
    std::byte* to;
    size_t from_bytes, to_bytes;  // of a row
    uint32_t rows, cols;          // cols: a multiple of 32
    bool fine;
};

}  // namespace granary::gpu::cuda

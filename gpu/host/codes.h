// SPDX-License-Identifier: GPL-3.0-or-later
// Activation codes: 8 bits with one f32 scale per 32 activations, and the sums that weights with
// a minimum or an offset need. 48 bytes per group, in planes:
//   int8  code[32 groups]       activation = scale * code
//   f32   scale[groups]
//   f32   sum[groups]           scale * (sum of the group's codes)
//   int32 negative[2 groups]    minus the sum of each 16 codes
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/host/decode.h"

namespace granary::gpu::host {

struct CodeRow {
    int8_t* code;
    float* scale;
    float* sum;
    int32_t* negative;
};

inline uint32_t groups_of(uint32_t cols) {
    return (cols + kGroup - 1) / kGroup;
}

inline size_t code_row_bytes(uint32_t cols) {
    return (groups_of(cols) * 48 + 63) / 64 * 64;
}

inline CodeRow code_row(std::byte* row, uint32_t cols) {
    const size_t groups = groups_of(cols);
    std::byte* after = row + groups * kGroup;
    return {reinterpret_cast<int8_t*>(row), reinterpret_cast<float*>(after),
            reinterpret_cast<float*>(after + groups * 4),
            reinterpret_cast<int32_t*>(after + groups * 8)};
}
inline CodeRow code_row(const std::byte* row, uint32_t cols) {
    return code_row(const_cast<std::byte*>(row), cols);
}

// Fills the groups [first, first + count) of a row of `cols` activations.
void quantise_groups(const float* values, uint32_t cols, uint32_t first, uint32_t count,
                     std::byte* codes);
inline void quantise_row(const float* values, uint32_t cols, std::byte* codes) {
    quantise_groups(values, cols, 0, groups_of(cols), codes);
}

}  // namespace granary::gpu::host

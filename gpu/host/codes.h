// SPDX-License-Identifier: GPL-3.0-or-later
// Activation codes: 8 bits with one f32 scale per 32 activations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/host/decode.h"

namespace granary::gpu::host {

// activation[i] = scale * code[i]. The sums serve weights with a minimum or an offset.
struct CodeGroup {
    int8_t code[kGroup];
    float scale;
    float sum;            // scale * (sum of the codes)
    int32_t negative[2];  // minus the sum of each 16 codes
};
static_assert(sizeof(CodeGroup) == 48);

inline uint32_t groups_of(uint32_t cols) {
    return (cols + kGroup - 1) / kGroup;
}

inline size_t code_row_bytes(uint32_t cols) {
    return (groups_of(cols) * sizeof(CodeGroup) + 63) / 64 * 64;
}

// The codes of `cols` activations; a last group that is not full is filled up with zeros.
void quantise_row(const float* values, uint32_t cols, std::byte* codes);

}  // namespace granary::gpu::host

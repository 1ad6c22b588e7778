// SPDX-License-Identifier: GPL-3.0-or-later
// Activation codes: 8 bits with one f32 scale per 32 activations, and 8 more bits for what these
// leave over. Dense matrices see all 16 bits, the routed experts the first 8: attention and output
// are where rounding costs answers, experts are where the time goes. On the starter model, of 200
// most likely tokens 183 stayed with 8 bits everywhere, 192 with 16 in the dense matrices.
//
// A row holds its coarse groups, then as many fine ones.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/host/decode.h"

namespace granary::gpu::host {

// Part of activation[i]: scale * code[i]. The sums serve weights with a minimum or an offset.
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
    return (2 * groups_of(cols) * sizeof(CodeGroup) + 63) / 64 * 64;
}

// The codes of `cols` activations; a last group that is not full is filled up with zeros.
void quantise_row(const float* values, uint32_t cols, std::byte* codes);
// Coarse groups only, for experts' inner values.
void quantise_coarse(const float* values, uint32_t cols, std::byte* codes);

}  // namespace granary::gpu::host

// SPDX-License-Identifier: GPL-3.0-or-later
// How a decode step keeps activations for quantised weights: as integers of 12 bits, 32 columns to
// a scale, in two parts. x = scale * (coarse + fine / 16); dense matrices read both parts, the
// routed experts the coarse one, for what it costs answers see gpu/host/codes.h. A row takes the
// bytes of one of f16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/cuda/ordered_rows.h"

namespace granary::gpu::cuda {

struct alignas(16) DecodeGroup {
    int8_t coarse[32];
    uint8_t fine[16];  // -8 .. 7: of columns 0 to 15 in the low nibbles, of the rest in the others
    float scale;       // largest |x| / 127
    int16_t coarse_sum, fine_sum;
    uint32_t unused[2];
};
static_assert(sizeof(DecodeGroup) == 64);

// 12 bits: 16 times the coarse code, rounded once.
inline constexpr int kDecodeMost = 127 * 16;

}  // namespace granary::gpu::cuda

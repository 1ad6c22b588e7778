// SPDX-License-Identifier: GPL-3.0-or-later
// What the bits of the block formats mean, said once: exact decoding and the 8-bit kernels both
// start from here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/weight_type.h"

namespace granary::gpu::host {

inline constexpr uint32_t kGroup = 32;  // weights of a Group, activations of one scale

// 32 consecutive weights: weight[i] = scale[i / 16] * (code[i] - offset) - minimum[i / 16].
struct Group {
    uint8_t code[kGroup];
    float scale[2];
    float minimum[2];
};

struct BlockFormat {
    // Fills *out from group number `index` of a row.
    void (*unpack)(const std::byte* row, size_t index, Group* out) = nullptr;
    uint8_t offset_bits = 0;   // offset = 1 << offset_bits; without a minimum only
    bool has_minimum = false;  // then the offset is 0
    bool halves = false;       // the two halves of a group have scales of their own
    uint8_t largest_code = 255;
};

// Null for f32, f16, bf16 and for types that this program cannot run.
const BlockFormat* block_format(WeightType type);

// By family, see decode.cpp, decode_k.cpp, decode_iq.cpp.
const BlockFormat* simple_format(WeightType type);
const BlockFormat* k_format(WeightType type);
const BlockFormat* iq_format(WeightType type);

}  // namespace granary::gpu::host

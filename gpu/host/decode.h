// SPDX-License-Identifier: GPL-3.0-or-later
// What the bits of the block formats mean, said once: exact decoding and the 8-bit kernels both
// start from here.
#pragma once

#include <bit>
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

// Codes of 4-bit tables: IQ4_NL's and IQ4_XS's values plus 128; MXFP4's doubled values plus 16.
inline constexpr uint8_t kNonlinearCodes[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                129, 141, 153, 166, 181, 197, 217, 241};
inline constexpr uint8_t kMxfp4Codes[16] = {16, 17, 18, 19, 20, 22, 24, 28,
                                            16, 15, 14, 13, 12, 10, 8,  4};
// 2^(e - 128), which is subnormal below 2: half of the block's scale.
inline float mxfp4_scale(std::byte exponent) {
    const auto e = static_cast<uint32_t>(exponent);
    return std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

// By family, see decode.cpp, decode_k.cpp, decode_iq.cpp.
const BlockFormat* simple_format(WeightType type);
const BlockFormat* k_format(WeightType type);
const BlockFormat* iq_format(WeightType type);

}  // namespace granary::gpu::host

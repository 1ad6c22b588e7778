// SPDX-License-Identifier: GPL-3.0-or-later
// The block formats in which GGUF files keep weights. Numbers are those of the files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace granary::gpu {

enum class WeightType : uint32_t {
    f32 = 0,
    f16 = 1,
    q4_0 = 2,
    q4_1 = 3,
    q5_0 = 6,
    q5_1 = 7,
    q8_0 = 8,
    q2_k = 10,
    q3_k = 11,
    q4_k = 12,
    q5_k = 13,
    q6_k = 14,
    iq2_xxs = 16,
    iq2_xs = 17,
    iq3_xxs = 18,
    iq1_s = 19,
    iq4_nl = 20,
    iq3_s = 21,
    iq2_s = 22,
    iq4_xs = 23,
    iq1_m = 29,
    bf16 = 30,
    tq1_0 = 34,
    tq2_0 = 35,
    mxfp4 = 39,
    nvfp4 = 40,
};

struct WeightTypeInfo {
    WeightType type;
    std::string_view name;  // "Q4_K", as in file names
    uint32_t block_elements;
    uint32_t block_bytes;
    bool decodes;  // this program can run weights of this type
};

// Null for a number that no known type has.
const WeightTypeInfo* weight_type_info(uint32_t number);
inline const WeightTypeInfo& weight_type_info(WeightType type) {
    return *weight_type_info(static_cast<uint32_t>(type));
}

// Bytes of one row of `cols` weights; cols must be a multiple of block_elements.
inline size_t row_bytes(WeightType type, size_t cols) {
    const WeightTypeInfo& info = weight_type_info(type);
    return cols / info.block_elements * info.block_bytes;
}

// Decodes `cols` weights of one row to f32, exactly as the format defines them.
void decode_row(WeightType type, const std::byte* row, float* out, size_t cols);

}  // namespace granary::gpu

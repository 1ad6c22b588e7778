// SPDX-License-Identifier: GPL-3.0-or-later
// Arguments of the matrix kernels, as host and device see them: dense matrices and experts, of
// prompts, of decode steps, and the plain ones.
#pragma once

#include <cstdint>

#include "gpu/kernels.h"

namespace granary::gpu::cuda {

// A set of experts by number.
inline constexpr uint32_t kMaxExperts = 512;
struct ExpertSet {
    uint32_t word[kMaxExperts / 32];
};

// ---- plain kernels (matmul_plain.cu): any type and size -----------------------------------------

// Rows as f32 values, or as codes (f16 ordered rows) where those are not null.
struct PlainRows {
    const float* values;     // [rows, cols]
    const std::byte* codes;  // [rows, code_bytes]
    size_t code_bytes;
};
struct PlainMatmul {
    const std::byte* weight;  // [features, row_bytes]
    size_t row_bytes;
    PlainRows in;
    float* out;  // [rows, features]
    uint32_t cols, features;
    WeightType type;
    bool add;
};
struct PlainExperts {
    const ExpertEntry* entries;  // [experts]
    const int32_t *order, *expert;
    PlainRows in, hidden;  // hidden: values by route, codes in the order of the sorted routes
    void* out;             // [routes, hidden_size]: f16 where hidden has codes, else f32
    size_t gate_row_bytes, up_row_bytes, down_row_bytes;
    uint32_t used, hidden_size, ffn;
    WeightType gate, up, down;
    ExpertSet list;
};

}  // namespace granary::gpu::cuda

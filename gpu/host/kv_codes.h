// SPDX-License-Identifier: GPL-3.0-or-later
// The codes of K/V cells (gpu/kv_format.h): heads to codes and scales, and tiles of them back.
// Both give the same bits on every vector target.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/kv_format.h"

namespace granary::gpu::host {

// In place, the rotation of KvPart::rotated; `dim` is a multiple of 8.
void rotate_head(float* x /*[dim]*/, uint32_t dim);

// One head's values to int8 or int4. A group with a value that is not finite reads back as such.
void encode_head(KvCodes codes, const float* x /*[dim]*/, uint32_t dim, std::byte* to,
                 std::byte* scales);

// Some cells of one head: their codes lie code_row bytes apart and their scales scale_row bytes.
struct CodeRows {
    const std::byte* codes = nullptr;
    const std::byte* scales = nullptr;
    size_t code_row = 0, scale_row = 0;
    uint32_t rows = 0;
};
// To rows of `dim` f32 values, `stride` values apart; fetches as many rows after them into cache.
void decode_rows(KvCodes codes, const CodeRows& from, uint32_t dim, float* to, size_t stride);

}  // namespace granary::gpu::host

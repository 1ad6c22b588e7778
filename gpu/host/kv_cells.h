// SPDX-License-Identifier: GPL-3.0-or-later
// Where a conversation's cells lie, and tiles of them as f32.
#pragma once

#include <cstring>

#include "gpu/host/rows.h"
#include "gpu/kernels.h"

namespace granary::gpu::host {

inline std::byte* code_row(const KvView& kv, const KvPart& part, uint32_t cell) {
    return kv.base + cell / kStepCells * kv.step_bytes + part.code_offset +
           cell % kStepCells * part.code_row;
}

// A head's values rounded up to whole vectors of every target.
inline uint32_t padded_dim(uint32_t head_dim) {
    return (head_dim + 15) / 16 * 16;
}

// One head of cells [first, first + count), which lie in one step, to rows of padded_dim f32
// values; rows up to `rows` and the padding are zeroed.
inline void load_cells(const KvView& kv, const KvPart& part, uint32_t head, uint32_t head_dim,
                       uint32_t first, uint32_t count, uint32_t rows, float* to) {
    const uint32_t width = padded_dim(head_dim);
    const std::byte* from = code_row(kv, part, first) + head * kv_code_bytes(part.codes, head_dim);
    if (part.codes == KvCodes::f16) {
        rows_from_half(from, part.code_row, count, head_dim, to, width);
    } else {
        for (uint32_t i = 0; i < count; ++i)
            std::memcpy(to + size_t{i} * width, from + i * part.code_row, head_dim * sizeof(float));
    }
    if (width > head_dim)
        for (uint32_t i = 0; i < count; ++i)
            std::memset(to + size_t{i} * width + head_dim, 0, (width - head_dim) * sizeof(float));
    std::memset(to + size_t{count} * width, 0, size_t{rows - count} * width * sizeof(float));
}

}  // namespace granary::gpu::host

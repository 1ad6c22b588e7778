// SPDX-License-Identifier: GPL-3.0-or-later
// Where a conversation's cells lie, and tiles of them as f32.
#pragma once

#include <cstring>

#include "gpu/host/rows.h"
#include "gpu/kernels.h"

namespace granary::gpu::host {

inline std::byte* cell_row(const KvView& kv, size_t part_offset, uint32_t cell) {
    return kv.base + cell / kStepCells * kv.step_bytes + part_offset +
           cell % kStepCells * kv.row_bytes;
}
inline size_t value_bytes(const KvView& kv) {
    return kv.format == KvFormat::f16 ? 2 : 4;
}

// A head's values rounded up to whole vectors of every target.
inline uint32_t padded_dim(uint32_t head_dim) {
    return (head_dim + 15) / 16 * 16;
}

// One head of cells [first, first + count), which lie in one step, to rows of padded_dim f32
// values; rows up to `rows` and the padding are zeroed.
inline void load_cells(const KvView& kv, size_t part_offset, uint32_t head, uint32_t head_dim,
                       uint32_t first, uint32_t count, uint32_t rows, float* to) {
    const uint32_t width = padded_dim(head_dim);
    const std::byte* from =
        cell_row(kv, part_offset, first) + size_t{head} * head_dim * value_bytes(kv);
    if (kv.format == KvFormat::f16) {
        rows_from_half(from, kv.row_bytes, count, head_dim, to, width);
    } else {
        for (uint32_t i = 0; i < count; ++i)
            std::memcpy(to + size_t{i} * width, from + i * kv.row_bytes, head_dim * sizeof(float));
    }
    if (width > head_dim)
        for (uint32_t i = 0; i < count; ++i)
            std::memset(to + size_t{i} * width + head_dim, 0, (width - head_dim) * sizeof(float));
    std::memset(to + size_t{count} * width, 0, size_t{rows - count} * width * sizeof(float));
}

}  // namespace granary::gpu::host

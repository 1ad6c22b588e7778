// SPDX-License-Identifier: GPL-3.0-or-later
// Where a conversation's cells lie, and tiles of them as f32.
#pragma once

#include <cstring>

#include "gpu/host/kv_codes.h"
#include "gpu/host/rows.h"
#include "gpu/kernels.h"

namespace granary::gpu::host {

inline std::byte* cell_row(const KvView& kv, size_t offset, size_t row_bytes, uint32_t cell) {
    return kv.base + cell / kStepCells * kv.step_bytes + offset + cell % kStepCells * row_bytes;
}
inline std::byte* head_codes(const KvView& kv, const KvPart& part, uint32_t cell, uint32_t head,
                             uint32_t head_dim) {
    return cell_row(kv, part.code_offset, part.code_row, cell) +
           head * kv_code_bytes(part.codes, head_dim);
}
inline std::byte* head_scales(const KvView& kv, const KvPart& part, uint32_t cell, uint32_t head,
                              uint32_t head_dim) {
    return cell_row(kv, part.scale_offset, part.scale_row, cell) +
           head * kv_scale_bytes(part.codes, head_dim);
}

// One head of one cell, rotated where the part is.
inline void store_head(const KvView& kv, const KvPart& part, uint32_t cell, uint32_t head,
                       uint32_t head_dim, const float* values) {
    std::byte* to = head_codes(kv, part, cell, head, head_dim);
    switch (part.codes) {
        case KvCodes::f16:
            to_half(values, head_dim, reinterpret_cast<uint16_t*>(to));
            break;
        case KvCodes::f32:
            std::memcpy(to, values, head_dim * sizeof(float));
            break;
        case KvCodes::int8:
        case KvCodes::int4:
            encode_head(part.codes, values, head_dim, to,
                        head_scales(kv, part, cell, head, head_dim));
            break;
    }
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
    const std::byte* from = head_codes(kv, part, first, head, head_dim);
    switch (part.codes) {
        case KvCodes::f16:
            rows_from_half(from, part.code_row, count, head_dim, to, width);
            break;
        case KvCodes::f32:
            for (uint32_t i = 0; i < count; ++i)
                std::memcpy(to + size_t{i} * width, from + i * part.code_row,
                            head_dim * sizeof(float));
            break;
        case KvCodes::int8:
        case KvCodes::int4:
            decode_rows(part.codes,
                        {from, head_scales(kv, part, first, head, head_dim), part.code_row,
                         part.scale_row, count},
                        head_dim, to, width);
            break;
    }
    if (width > head_dim)
        for (uint32_t i = 0; i < count; ++i)
            std::memset(to + size_t{i} * width + head_dim, 0, (width - head_dim) * sizeof(float));
    std::memset(to + size_t{count} * width, 0, size_t{rows - count} * width * sizeof(float));
}

}  // namespace granary::gpu::host

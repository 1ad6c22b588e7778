// SPDX-License-Identifier: GPL-3.0-or-later
// K/V cells in device code: where a head of a cell lies and what its codes stand for
// (gpu/kv_format.h).
#pragma once

#include <cuda_fp16.h>

#include "gpu/kernels.h"

namespace granary::gpu::cuda {

__device__ __forceinline__ const std::byte* kv_base(const KvView& kv) {
    return kv.place ? kv.place->kv + kv.offset : kv.base;
}
__device__ __forceinline__ size_t cell_offset(const KvView& kv, size_t part_offset, size_t row,
                                              uint32_t cell) {
    return size_t{cell / kStepCells} * kv.step_bytes + part_offset +
           size_t{cell % kStepCells} * row;
}

// Bytes of one head's codes and of its scales: as the functions of kv_format.h.
__device__ __forceinline__ uint32_t head_code_bytes(KvCodes codes, uint32_t dim) {
    return codes == KvCodes::f32    ? dim * 4
           : codes == KvCodes::f16  ? dim * 2
           : codes == KvCodes::int8 ? dim
                                    : dim / 2;
}
__device__ __forceinline__ uint32_t head_scale_bytes(KvCodes codes, uint32_t dim) {
    return codes == KvCodes::int8   ? (dim + 63) / 64 * 2
           : codes == KvCodes::int4 ? (dim + 31) / 32 * 2
                                    : 0;
}

// One head of one cell.
struct HeadCodes {
    const std::byte* codes;
    const std::byte* scales;
};
__device__ __forceinline__ HeadCodes head_codes(const KvView& kv, const std::byte* base,
                                                const KvPart& part, uint32_t cell, uint32_t head,
                                                uint32_t dim) {
    return {base + cell_offset(kv, part.code_offset, part.code_row, cell) +
                head * head_code_bytes(part.codes, dim),
            base + cell_offset(kv, part.scale_offset, part.scale_row, cell) +
                head * head_scale_bytes(part.codes, dim)};
}

// Value `i` of a head of `dim`, in any format; rotated where the part is.
__device__ __forceinline__ float value_of(KvCodes codes, const HeadCodes& head, uint32_t dim,
                                          uint32_t i) {
    if (codes == KvCodes::f32) return reinterpret_cast<const float*>(head.codes)[i];
    if (codes == KvCodes::f16) return __half2float(reinterpret_cast<const __half*>(head.codes)[i]);
    const auto* scales = reinterpret_cast<const __half*>(head.scales);
    if (codes == KvCodes::int8)
        return static_cast<float>(reinterpret_cast<const int8_t*>(head.codes)[i]) *
               __half2float(scales[i / 64]);
    const uint32_t first = i / 32 * 32, half = min(32u, dim - first) / 2;
    const bool high = i - first >= half;
    const auto pair = static_cast<uint32_t>(
        reinterpret_cast<const uint8_t*>(head.codes)[first / 2 + i - first - (high ? half : 0)]);
    const int code = static_cast<int>(pair << (high ? 24 : 28)) >> 28;
    return static_cast<float>(code) * __half2float(scales[i / 32]);
}

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// The order in which rows of f16 activations keep their columns, where the other factor is a
// quantised weight: inside each 32, so that a thread widens eight consecutive weights of a block
// into what it holds of a tensor-core operand (fragments.cuh). A dot product does not care.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define GRANARY_HOST_DEVICE __host__ __device__
#else
#define GRANARY_HOST_DEVICE
#endif

namespace granary::gpu::cuda {

// Where column `column` lies.
GRANARY_HOST_DEVICE constexpr uint32_t ordered_column(uint32_t column) {
    const uint32_t t = column / 8 % 4, s = column / 4 % 2, i = column / 2 % 2, h = column % 2;
    return column / 32 * 32 + 16 * s + 8 * h + 2 * t + i;
}
// The inverse: the column that lies at `place`.
GRANARY_HOST_DEVICE constexpr uint32_t column_at(uint32_t place) {
    const uint32_t s = place / 16 % 2, h = place / 8 % 2, t = place / 2 % 4, i = place % 2;
    return place / 32 * 32 + 8 * t + 4 * s + 2 * i + h;
}

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// An array in global memory, as it is described to the tensor copy engine: ours, in the room that
// the driver's own description takes.
#pragma once

#include <cstdint>

namespace granary::test::ptx {

inline constexpr uint32_t kMostDimensions = 4;

struct TensorMap {
    uint64_t address;
    uint64_t strides[kMostDimensions - 1];  // in bytes, from the second dimension on
    uint64_t sizes[kMostDimensions];
    uint32_t box[kMostDimensions];  // elements that are copied at once
    uint16_t dimensions, element_bytes;
};
static_assert(sizeof(TensorMap) <= 128);

// A row of 128 bytes keeps its eight pieces of 16 in another order, which follows from where it
// lies: `at` is an address in shared memory.
constexpr uint32_t swizzled(uint32_t at) {
    return at ^ (at >> 7 & 7) << 4;
}

}  // namespace granary::test::ptx

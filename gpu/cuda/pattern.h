// SPDX-License-Identifier: GPL-3.0-or-later
// The pattern of the self-check, the same on host and device.
#pragma once

#include <cstdint>

#if defined(__CUDACC__) || defined(__HIP__)
#include "gpu/cuda/portable.h"
#define GRANARY_HOST_DEVICE __host__ __device__
#else
#define GRANARY_HOST_DEVICE
#endif

namespace granary::gpu {

// The word at index i of a piece of memory that was given `seed`. Words of different seeds and
// places differ, but for accidents.
GRANARY_HOST_DEVICE inline uint64_t pattern_word(uint64_t seed, uint64_t i) {
    const uint64_t mixed = (seed * 0xd1342543de82ef95u + i) * 0x9e3779b97f4a7c15u;
    return mixed ^ (mixed >> 29);
}

}  // namespace granary::gpu

// SPDX-License-Identifier: GPL-3.0-or-later
// The grids of the IQ formats. An entry is 16 bits, four to a word, the first in the lowest bits;
// in it, each weight of the entry has two bits (three in the grids of four weights), the first
// weight lowest, that number the values
//   IQ2: 8 25 43    IQ3_XXS: 4 12 20 28 36 44 52 62    IQ3_S: 1 3 5 7 9 11 13 15    IQ1: -1 0 1
#pragma once

#include <cstddef>
#include <cstdint>

namespace granary::gpu::host {

extern const uint64_t kIq2Xxs[64];  // 256 entries of 8 weights
extern const uint64_t kIq2Xs[128];  // 512 of 8
extern const uint64_t kIq2S[256];   // 1,024 of 8
extern const uint64_t kIq3Xxs[64];  // 256 of 4
extern const uint64_t kIq3S[128];   // 512 of 4
extern const uint64_t kIq1[512];    // 2,048 of 8

inline uint32_t grid_entry(const uint64_t* grid, size_t index) {
    return static_cast<uint32_t>(grid[index / 4] >> (16 * (index % 4)) & 0xffff);
}

}  // namespace granary::gpu::host

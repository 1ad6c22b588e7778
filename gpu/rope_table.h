// SPDX-License-Identifier: GPL-3.0-or-later
// How far the pairs of a head turn with each position (rotary positions, Su et al. 2021).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace granary::gpu {

// The first 2 turns.size() values of a head rotate: value i pairs with i + turns.size() (NEOX
// halves) and turns by position * turns[i] full turns. What has turned is multiplied by magnitude.
struct RopeTable {
    std::vector<double> turns;
    float magnitude = 1;
    uint32_t pairs() const { return static_cast<uint32_t>(turns.size()); }
};

// The first `dims` values rotate, pair i by position * base^(-2 i / dims) radians.
std::shared_ptr<const RopeTable> rope_table(uint32_t dims, double base);

}  // namespace granary::gpu

// SPDX-License-Identifier: GPL-3.0-or-later
// Everything that decides how a cell of the map looks, in 16 bits: equal keys, equal pixels.
#pragma once

#include <cstdint>

#include "granary/telemetry.h"

namespace granary::gui {

struct CellKey {
    // owner 3 bits | recency 3 | flash 2 | in transfer 1 | dimmed 1 | hollow 1
    uint16_t bits = 0;

    static constexpr int kFlashSteps = 3;  // 3: just changed hands, 0: long ago
    static constexpr uint16_t kCount = 1 << 11;

    static CellKey make(Owner owner, int recency, int flash, bool transfer, bool dimmed) {
        return {static_cast<uint16_t>(static_cast<unsigned>(owner) | unsigned(recency) << 3 |
                                      unsigned(flash) << 6 | unsigned(transfer) << 8 |
                                      unsigned(dimmed) << 9)};
    }
    static CellKey hollowPlace() { return {1 << 10}; }

    Owner owner() const { return static_cast<Owner>(bits & 7); }
    int recency() const { return bits >> 3 & 7; }
    int flash() const { return bits >> 6 & 3; }
    bool transfer() const { return bits >> 8 & 1; }
    bool dimmed() const { return bits >> 9 & 1; }   // its class is hidden by the legend
    bool hollow() const { return bits >> 10 & 1; }  // a place that no granule is mapped at
    bool operator==(const CellKey&) const = default;
};

}  // namespace granary::gui

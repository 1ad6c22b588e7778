// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/rope_table.h"

#include <cmath>
#include <numbers>

namespace granary::gpu {

std::shared_ptr<const RopeTable> rope_table(uint32_t dims, double base) {
    auto table = std::make_shared<RopeTable>();
    for (uint32_t i = 0; i < dims / 2; ++i)
        table->turns.push_back(1 / (2 * std::numbers::pi) *
                               std::pow(base, -static_cast<double>(2 * i) / dims));
    return table;
}

}  // namespace granary::gpu

// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/run/checkpoint.h"

#include <new>

#include "gpu/kernels.h"

namespace granary {

std::unique_ptr<std::byte[]> Checkpoint::allocate(uint64_t bytes) {
    return std::unique_ptr<std::byte[]>(new (std::nothrow) std::byte[bytes]);
}

double checkpoint_worth(uint64_t gap, uint64_t distance) {
    // Going back further also costs a pass over the weights, whatever the number of its tokens.
    constexpr double kPassCells = 256;
    return (static_cast<double>(gap) + kPassCells) /
           (static_cast<double>(distance) + gpu::kDeltaCells);
}

LeastWorth least_worth(std::span<const uint32_t> cells, uint64_t end) {
    LeastWorth least;
    uint64_t before = 0;
    for (size_t i = 0; i < cells.size(); ++i) {
        const double worth = checkpoint_worth(cells[i] - before, end - cells[i]);
        if (worth < least.worth) least = {i, worth};
        before = cells[i];
    }
    return least;
}

std::vector<uint32_t> checkpoint_cells(uint32_t from, uint32_t total) {
    std::vector<uint32_t> cells;
    for (uint64_t back = gpu::kDeltaCells; back + gpu::kDeltaCells <= total; back *= 2) {
        const auto cell =
            static_cast<uint32_t>((total - back) / gpu::kDeltaCells) * gpu::kDeltaCells;
        if (cell < uint64_t{from} + gpu::kDeltaCells) break;
        cells.push_back(cell);
    }
    return cells;
}

}  // namespace granary

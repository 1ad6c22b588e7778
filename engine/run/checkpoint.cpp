// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/run/checkpoint.h"

#include <sys/mman.h>

#include <cstdlib>

#include "engine/memory/layout.h"

namespace granary {

void FreeBytes::operator()(std::byte* bytes) const {
    std::free(bytes);
}

StateBytes allocate_state(uint64_t bytes) {
    constexpr uint64_t kHugePage = 2 << 20;
    const uint64_t whole = round_up(bytes, bytes < kHugePage ? kSlotAlignment : kHugePage);
    auto* const memory = static_cast<std::byte*>(
        std::aligned_alloc(bytes < kHugePage ? kSlotAlignment : kHugePage, whole));
    if (memory && bytes >= kHugePage) (void)madvise(memory, whole, MADV_HUGEPAGE);
    return StateBytes(memory);
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

// SPDX-License-Identifier: GPL-3.0-or-later
// Where the cells of a conversation lie in its K/V range.
#pragma once

#include <cstdint>

#include "gpu/kernels.h"
#include "granary/planner.h"

namespace granary {

// One K/V step of kStepCells cells: attention layer by attention layer K then V.
struct KvLayout {
    uint64_t row_bytes = 0;   // of one cell's K, and of its V
    uint64_t part_bytes = 0;  // of one layer's K (or V) in a step
    uint64_t step_bytes = 0;
    gpu::KvFormat format = gpu::KvFormat::f16;

    gpu::KvView view(std::byte* base, uint32_t layer) const {
        return {base,      step_bytes, 2 * layer * part_bytes, (2 * layer + 1) * part_bytes,
                row_bytes, format};
    }
};
KvLayout kv_layout(const ModelFacts& model, gpu::KvFormat format);

inline uint64_t steps_of(uint64_t cells) {
    return (cells + gpu::kStepCells - 1) / gpu::kStepCells;
}

}  // namespace granary

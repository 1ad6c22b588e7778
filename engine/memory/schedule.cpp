// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/memory/schedule.h"

#include <algorithm>

#include "engine/kv/kv_layout.h"
#include "engine/memory/layout.h"

namespace granary {

std::vector<ScheduledChunks> make_schedule(const ModelFacts& model, const DeviceFacts& device,
                                           const ScheduleFrame& frame, const Standing& standing,
                                           uint32_t largest, uint32_t from, uint32_t total) {
    // Cells for which K/V finds room beside the loan of a chunk.
    const auto cells_beside = [&](uint32_t chunk) -> uint64_t {
        const uint64_t taken =
            standing.away + standing.idle +
            divide_up(loan_layout(model, device, chunk).bytes, frame.granule_bytes);
        if (taken + standing.mapped > frame.range) return 0;
        if (frame.step_bytes == 0) return total;
        const uint64_t steps = (frame.range - taken) * frame.granule_bytes / frame.step_bytes;
        return steps * gpu::kStepCells;
    };
    std::vector<ScheduledChunks> schedule;
    uint32_t cell = from;
    // No larger than the prompt needs: a loan for it takes no more experts than it must.
    const uint32_t needed =
        static_cast<uint32_t>(round_up(std::max(total - from, kSmallestChunk), kSmallestChunk));
    for (uint32_t chunk = std::min(largest, needed); chunk && cell < total;
         chunk = smaller_chunk(chunk)) {
        const uint64_t limit = cells_beside(chunk);
        if (std::min(cell + chunk, total) > limit) continue;
        schedule.push_back({cell, chunk});
        // Every border at an absolute multiple of 64, where delta nets cut.
        const uint64_t end = cell + (limit - cell) / chunk * chunk;
        cell = limit >= total ? total
                              : static_cast<uint32_t>(end / gpu::kDeltaCells * gpu::kDeltaCells);
    }
    if (cell < total) schedule.clear();
    return schedule;
}

std::vector<ScheduledChunks> rest_of(const std::vector<ScheduledChunks>& schedule, uint32_t cell) {
    std::vector<ScheduledChunks> rest;
    for (const ScheduledChunks& part : schedule) {
        if (part.from <= cell) rest.clear();
        rest.push_back({std::max(part.from, cell), part.chunk});
    }
    return rest;
}

}  // namespace granary

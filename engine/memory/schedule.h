// SPDX-License-Identifier: GPL-3.0-or-later
// The chunks that a prompt is read in: fixed at its admission, large while K/V is small.
#pragma once

#include <vector>

#include "granary/planner.h"

namespace granary {

// What a schedule is made from; granules unless it says otherwise.
struct ScheduleFrame {
    uint64_t range = 0;  // of K/V and loan: the expert range above the floor
    uint64_t granule_bytes = 0;
    uint64_t step_bytes = 0;  // of a K/V step; 0: K/V takes nothing
};

// Chunks for tokens [from, total), the first of at most `largest` tokens: each as large as fits
// beside K/V of the cells up to its end. Empty where not even the smallest chunk does.
std::vector<ScheduledChunks> make_schedule(const ModelFacts& model, const DeviceFacts& device,
                                           const ScheduleFrame& frame, const Standing& standing,
                                           uint32_t largest, uint32_t from, uint32_t total);

// What is left of a schedule at `cell`.
std::vector<ScheduledChunks> rest_of(const std::vector<ScheduledChunks>& schedule, uint32_t cell);

}  // namespace granary

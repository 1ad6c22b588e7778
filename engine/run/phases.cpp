// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/run/phases.h"

namespace granary {

void PhaseClock::enter(Phase phase) {
    if (!entered_.empty() && entered_.back() == phase) return;
    if (entered_.size() + 1 == gpu::DeviceMemory::kMarks) {
        // Errors are left to whoever synchronises.
        device_.wait_here(device_.record(gpu::StreamId::compute));
        collect();
    }
    device_.mark(static_cast<uint32_t>(entered_.size()));
    entered_.push_back(phase);
}

void PhaseClock::collect() {
    if (entered_.empty()) return;
    const auto end = static_cast<uint32_t>(entered_.size());
    device_.mark(end);
    device_.wait_here(device_.record(gpu::StreamId::compute));
    for (uint32_t i = 0; i < end; ++i)
        seconds_[static_cast<size_t>(entered_[i])] += device_.seconds_between(i, i + 1);
    entered_.clear();
}

}  // namespace granary

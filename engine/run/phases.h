// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <array>
#include <vector>

#include "gpu/device.h"
#include "granary/engine.h"

namespace granary {

// Where the time of prompts goes, by marks on the compute stream: for benches.
class PhaseClock {
  public:
    explicit PhaseClock(gpu::Device& device) : device_(device) {}
    // What is queued from now on is of `phase`, until the next call.
    void enter(Phase phase);
    // Adds up what was marked; the stream has finished.
    void collect();
    const PhaseSeconds& seconds() const { return seconds_; }

  private:
    gpu::Device& device_;
    std::vector<Phase> entered_;  // one for each mark
    PhaseSeconds seconds_{};
};

}  // namespace granary

// SPDX-License-Identifier: GPL-3.0-or-later
// The self-check: what every device must do for the memory manager to rely on it. The same checks
// run on a GPU (granary-gpu-check) and, in the tests, on the host.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "gpu/check/card.h"

namespace granary::gpu::check {

struct Outcome {
    enum class Verdict { held, failed, not_applicable };
    std::string name;     // "remap"
    std::string promise;  // one sentence of what was to hold
    Verdict verdict = Verdict::held;
    std::string detail;  // figures, or what went wrong
    double seconds = 0;
};

struct Limits {
    size_t granules = 64;  // of each pool; 16 at least
    size_t faults = 4;     // calls of each driver function that are made to fail
};

// Runs every check in turn, each on pools of its own, telling `done` of each. Checks that end a
// device's context come last.
std::vector<Outcome> run_checks(Subject& subject, const Limits& limits,
                                const std::function<void(const Outcome&)>& done = {});

}  // namespace granary::gpu::check

// SPDX-License-Identifier: GPL-3.0-or-later
// What of a model stays in host memory, made readable for a device that wants it locked: where the
// file is mapped, else, where driver or system refuse that, in locked copies; as much as is
// allowed. Experts beyond that stay in the mapping, which the system may drop and read again, and
// are brought by the processor (cpu_worker.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "gpu/device.h"
#include "granary/settings.h"

namespace granary {

struct HostWeights {
    std::vector<gpu::HostBuffer> copies;  // must live as long as the device
    uint64_t in_place = 0, copied = 0;    // bytes that are locked
    uint32_t unreadable_layers = 0;       // whose experts are not all locked
    // Why no more could be locked in place, then why not in copies; empty: nothing was refused.
    std::string refusal;
};

// Bytes that `page-lock` allows: as it says, or what is free less 15 % of all and 4 GiB at least.
uint64_t lock_allowance(const Settings& settings);

// Moves `model`'s pointers where copies are made. Errors: the device's, and where not even the
// token embedding can be locked.
Result<HostWeights> lock_weights(gpu::Device& device, Model& model, uint64_t allowance);

}  // namespace granary

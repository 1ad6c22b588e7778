// SPDX-License-Identifier: GPL-3.0-or-later
// The device that settings name, and what the planner must know of it.
#pragma once

#include <memory>

#include "gpu/device.h"
#include "granary/planner.h"

namespace granary {

// `granule_bytes` 0: by the settings and the device's own rule; `nice`: of the host's threads.
// Errors: as make_host_device and make_cuda_device.
Result<std::unique_ptr<gpu::Device>> open_device(const Settings& settings, size_t granule_bytes,
                                                 int nice);

DeviceFacts facts_of(gpu::Device& device, const ModelFacts& model, gpu::Arithmetic arithmetic);

}  // namespace granary

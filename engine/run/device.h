// SPDX-License-Identifier: GPL-3.0-or-later
// The device that settings name, and what the planner must know of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gpu/device.h"
#include "gpu/found_devices.h"
#include "granary/planner.h"

namespace granary {

// What the setting `device` leaves to try, best first, and a sentence each on what cannot be used.
// Never without a candidate.
struct DeviceChoice {
    std::vector<gpu::FoundDevice> candidates;
    std::vector<std::string> passed_over;
};
DeviceChoice choose_device(const std::string& wanted, const std::vector<gpu::FoundDevice>& found);

// `name`: "host" or "cuda:0". `granule_bytes` 0: by the settings and the device's own rule; `nice`:
// of the host's threads. Errors: as make_host_device and make_cuda_device.
Result<std::unique_ptr<gpu::Device>> open_device(const std::string& name, const Settings& settings,
                                                 size_t granule_bytes, int nice);

// Errors: `unsupported` where the device's kernels have no room for the model.
Result<void> check_kernels(gpu::Device& device, const ModelFacts& model);

// What the planner must know of a device and of its kernels' buffers.
DeviceFacts facts_of(gpu::Device& device, const ModelFacts& model, gpu::Arithmetic arithmetic);

}  // namespace granary

// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <string>
#include <vector>

#include "gpu/device.h"

namespace granary::gpu {

// unused_devices() with /proc, /sys and /usr looked for under `root`: a made-up tree in tests. Only
// files are read; no driver library is loaded.
std::vector<UnusedDevice> unused_devices_in(const std::string& root);

}  // namespace granary::gpu

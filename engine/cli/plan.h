// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

#include "engine/cli/common.h"
#include "granary/device_profile.h"

namespace granary::cli {

struct PlanOptions {
    std::string model;
    std::optional<std::string> device_profile;  // file of a device that need not be here
    std::optional<uint32_t> prompt_tokens;      // none: as many as the context takes
    bool json = false;
    Settings settings;
};
// What the engine would do with these settings, from the model file's header alone: layout, bytes
// by owner, chunks of a prompt, predicted speeds; or why not, with exit code 3.
int plan(const PlanOptions& options, std::ostream& out, std::ostream& err);

Result<DeviceProfile> read_device_profile(const std::string& path);

}  // namespace granary::cli

// SPDX-License-Identifier: GPL-3.0-or-later
// The plan that the engine would make of edited settings.
#pragma once

#include "granary/planner.h"

namespace granary::gui {

// `planner` is the loaded model's. Settings that ask for the other face of the host, or for
// another granule, are planned for the device as it would then be.
Result<Plan> previewPlan(const Planner& planner, const Settings& settings);

}  // namespace granary::gui

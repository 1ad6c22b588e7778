// SPDX-License-Identifier: GPL-3.0-or-later
// A plan in a few words with numbers, against the one that runs.
#pragma once

#include <QString>

#include "granary/planner.h"

namespace granary::gui {

class SettingsDraft;

// Bytes with a full context while a prompt runs; what changes is said as "8 MiB -> 16 MiB".
// Rich text, everything in it escaped.
QString planText(const Plan& running, const Plan& edited);

// The name of a K/V format.
QString formatText(gpu::KvFormat format);

// Why nothing can be set while no model is there.
QString noSettingsText(const SettingsDraft& draft);

}  // namespace granary::gui

// SPDX-License-Identifier: GPL-3.0-or-later
// What a longer context costs: the smallest budget that the planner accepts for it.
#pragma once

#include "granary/planner.h"

namespace granary::gui {

// The plan for reading `tokens` at once with room for a question and an answer: the settings as
// they are, with a longer max-context and, on a card, the smallest budget that holds it. Pure.
Result<Plan> settingsForContext(const Planner& planner, Settings settings, int64_t tokens);

}  // namespace granary::gui

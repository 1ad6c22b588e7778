// SPDX-License-Identifier: GPL-3.0-or-later
// Attributes of the variable `loop`.
#pragma once

#include <optional>
#include <string_view>

#include "engine/text/template/value.h"

namespace granary::jinja {

class Workspace;

// self holds loop. Nothing if a loop has no such attribute.
std::optional<Value> loop_attribute(Workspace& workspace, const Value& self, Loop& loop,
                                    std::string_view name);

}  // namespace granary::jinja

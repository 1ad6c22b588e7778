// SPDX-License-Identifier: GPL-3.0-or-later
// Template source to Program, by Jinja's grammar without templates that load templates.
#pragma once

#include <string_view>

#include "engine/text/template/ast.h"
#include "engine/text/template/limits.h"

namespace granary::jinja {

// Throws Failure with the position of what cannot be parsed or is not supported.
Program parse(std::string_view source, const Limits& limits);

}  // namespace granary::jinja

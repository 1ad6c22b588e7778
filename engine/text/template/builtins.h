// SPDX-License-Identifier: GPL-3.0-or-later
// Filters, tests, methods and functions that templates find by name.
#pragma once

#include <string_view>

#include "engine/text/template/value.h"

namespace granary::jinja {

class Workspace;
struct Arguments;

using Filter = Value (*)(Workspace&, const Value& input, const Arguments&);
using Test = bool (*)(Workspace&, const Value& input, const Arguments&);
using Method = Value (*)(Workspace&, const Value& self, const Arguments&);
using Global = Value (*)(Workspace&, const Arguments&);

// Null if there is none of this name.
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);
Global find_global(std::string_view name);
Method find_method(const Value& self, std::string_view name);

}  // namespace granary::jinja

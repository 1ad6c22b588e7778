// SPDX-License-Identifier: GPL-3.0-or-later
// Python's two ways to format: "%s" % values and "{}".format(values).
#pragma once

#include "engine/text/template/arguments.h"
#include "engine/text/template/value.h"

namespace granary::jinja {

class Workspace;

// values: a tuple, a mapping for %(name)s, or one value.
Value percent_format(Workspace& workspace, const Text& format, const Value& values);
Value brace_format(Workspace& workspace, const Text& format, const Arguments& arguments);

}  // namespace granary::jinja

// SPDX-License-Identifier: GPL-3.0-or-later
// Searches whose work counts, and that no text makes slow.
#pragma once

#include <string_view>

#include "engine/text/template/workspace.h"

namespace granary::jinja {

// Offset of the first `wanted` in text at or behind `from`; npos if there is none. Time is linear
// in the text, whatever both contain.
size_t find_text(Workspace& workspace, std::string_view text, std::string_view wanted,
                 size_t from = 0);

// Offset of the last one. Time is the product of both lengths at worst, and counts as such.
size_t find_last_text(Workspace& workspace, std::string_view text, std::string_view wanted);

}  // namespace granary::jinja

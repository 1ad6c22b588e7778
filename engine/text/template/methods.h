// SPDX-License-Identifier: GPL-3.0-or-later
// Shared by methods and filters that do the same.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/text/template/builtins.h"
#include "engine/text/template/workspace.h"

namespace granary::jinja {

Method find_text_method(std::string_view name);
Method find_text_predicate(std::string_view name);  // isalpha and the like; part of the former

// text without the characters of `set` at its sides.
std::string_view strip(std::string_view text, std::string_view set, bool left, bool right);

// At most `count` replacements; all if negative.
std::string replace_all(Workspace& workspace, std::string_view text, std::string_view from,
                        std::string_view to, int64_t count);

std::vector<std::string_view> split_lines(Workspace& workspace, std::string_view text,
                                          bool keep_ends);

// text with fill around it. side 0: fill behind it, 1: on both sides, 2: in front of it.
std::string center_text(Workspace& workspace, std::string_view text, int64_t width,
                        std::string_view fill, int side);

}  // namespace granary::jinja

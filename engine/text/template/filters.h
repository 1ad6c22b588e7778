// SPDX-License-Identifier: GPL-3.0-or-later
// The filters by subject; find_filter asks all of them.
#pragma once

#include <string_view>

#include "engine/text/template/builtins.h"

namespace granary::jinja {

Filter find_text_filter(std::string_view name);
Filter find_number_filter(std::string_view name);
Filter find_sequence_filter(std::string_view name);
Filter find_selection_filter(std::string_view name);

}  // namespace granary::jinja

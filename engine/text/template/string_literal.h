// SPDX-License-Identifier: GPL-3.0-or-later
// Escapes in string literals, as Python's unicode_escape decodes them.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace granary::jinja {

// The error is a sentence about the escape that cannot be decoded.
tl::expected<std::string, std::string> unescape(std::string_view body);

}  // namespace granary::jinja

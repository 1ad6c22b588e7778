// SPDX-License-Identifier: GPL-3.0-or-later
// strftime_now.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace granary::jinja {

// The time `now` (ISO 8601; absent: the local time of this moment) in a strftime format, with
// English names whatever the locale. Throws Failure for a time or directive it does not know.
std::string format_time(std::string_view format, const std::optional<std::string>& now);

}  // namespace granary::jinja

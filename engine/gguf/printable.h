// SPDX-License-Identifier: GPL-3.0-or-later
// Text out of a file, made safe to show: a file must not be able to move a terminal's cursor,
// ring its bell or reorder what a person reads.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace granary::gguf {

// Valid UTF-8 stays, except control characters (C0, DEL, C1), line and paragraph separators and
// bidirectional controls; those become \n, \t, \r or \u{202e}, bytes that are not UTF-8 \xff, and
// a backslash \\. Text longer than `limit` bytes is cut at a character and ends in "...".
std::string printable(std::string_view text, size_t limit = 200);

// The same between double quotes; a quote inside is escaped.
std::string quoted(std::string_view text, size_t limit = 200);

}  // namespace granary::gguf

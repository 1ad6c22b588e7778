// SPDX-License-Identifier: GPL-3.0-or-later
// A document's bytes.
#pragma once

#include <string>

#include "engine/extract/outcome.h"

namespace granary::extract {

inline constexpr size_t kInputLimit = size_t{512} << 20;

// Reads a whole regular file. Read, not mapped: a file that shrinks meanwhile must not kill us.
Outcome<std::string> read_input(const std::string& path);

// The last part of a path, as a title.
std::string file_name(const std::string& path);

}  // namespace granary::extract

// SPDX-License-Identifier: GPL-3.0-or-later
// Plain text, Markdown and source files in the encodings that are met in practice.
#pragma once

#include <string>
#include <string_view>

#include "engine/extract/outcome.h"

namespace granary::extract {

// The encoding is that of the byte order mark; else UTF-8, also with a few bytes that are not
// (they become U+FFFD and are counted); else windows-1252, the superset of Latin-1 that such files
// are nearly always written in. Zero bytes or many control characters: "binary".
Outcome<Document> read_text(const std::string& path, std::string_view bytes);

}  // namespace granary::extract

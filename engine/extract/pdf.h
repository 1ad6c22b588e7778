// SPDX-License-Identifier: GPL-3.0-or-later
// PDF files, through poppler.
#pragma once

#include <string>
#include <string_view>

#include "engine/extract/outcome.h"

namespace granary::extract {

// "%PDF-" at the start, or, in a file named .pdf, within the first 1,024 bytes, where readers look.
bool is_pdf(const std::string& path, std::string_view bytes);

Outcome<Document> read_pdf(const std::string& path, std::string_view bytes);

}  // namespace granary::extract

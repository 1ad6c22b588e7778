// SPDX-License-Identifier: GPL-3.0-or-later
// granary-cli inspect: what a GGUF file says and what its weights cost.
#pragma once

#include <ostream>
#include <string>

namespace granary::cli {

// Prints metadata (long arrays and strings abbreviated), tensors and a summary to `out`: a table,
// or one JSON object {file, version, parts, bytes, metadata, tensors, summary}. Whatever comes
// from the file is escaped, safe for a terminal. Returns the exit code. Works on files of any
// family, vocabulary-only ones too.
int inspect(const std::string& path, bool json, std::ostream& out, std::ostream& err);

}  // namespace granary::cli

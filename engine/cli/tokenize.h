// SPDX-License-Identifier: GPL-3.0-or-later
// granary-cli tokenize: the token ids of a text.
#pragma once

#include <optional>
#include <ostream>
#include <string>

namespace granary::cli {

struct TokenizeOptions {
    std::string model;                // a GGUF file; one with a vocabulary alone will do
    std::optional<std::string> text;  // exactly one of text and
    std::optional<std::string> file;  // a file that holds it, at most 256 MiB, bytes as they are
    bool special = false;             // read special tokens, and add BOS where the model does
    bool json = false;
};

// Prints the ids to `out`: with spaces between them on a line, or as {"ids":[..]}. Returns the exit
// code; faults are told on `err`.
int tokenize(const TokenizeOptions& options, std::ostream& out, std::ostream& err);

}  // namespace granary::cli

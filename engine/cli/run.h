// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

#include "granary/engine.h"

namespace granary::cli {

struct RunOptions {
    std::string model;
    std::optional<std::string> document;  // a file
    std::string prompt;
    bool raw = false;
    bool verbose = false;
    std::optional<uint32_t> max_tokens;
    Sampling sampling;
    Settings settings;
    std::optional<std::string> conversation;  // a file
};
// Which of the two streams a person looks at.
struct Terminals {
    bool out = false, err = false;
};
// Prints the answer alone on `out`, on a terminal without control characters; progress on `err`
// where that is a terminal; returns the exit code. Ctrl+C stops the answer, and so does an `out`
// that takes no more, which is left failed. With a conversation's file the question follows what
// was said in it, and all is written back at the end, also of an answer that was stopped.
int run(const RunOptions& options, std::ostream& out, std::ostream& err, Terminals terminals,
        StopSignal& stop);

}  // namespace granary::cli

// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

#include "granary/engine.h"

namespace granary::cli {

struct RunOptions {
    std::string model;
    std::string document;  // a file; empty: none
    std::string prompt;
    bool raw = false;
    bool verbose = false;
    std::optional<uint32_t> max_tokens;
    Sampling sampling;
    Settings settings;
};
// Prints the answer alone on `out`; progress on `err` where that is a terminal; returns the exit
// code. Ctrl+C stops the answer.
int run(const RunOptions& options, std::ostream& out, std::ostream& err, bool err_is_terminal,
        const StopSignal& stop);

}  // namespace granary::cli

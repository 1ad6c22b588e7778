// SPDX-License-Identifier: GPL-3.0-or-later
// What the subcommands share: exit codes, how errors look, files.
#pragma once

#include <ostream>
#include <string>

#include "granary/engine.h"

namespace granary::cli {

enum ExitCode : int {
    kOk = 0,
    kUsage = 1,     // the command line makes no sense
    kBadInput = 2,  // a file or document cannot be used
    kRefused = 3,   // it would not fit; nothing was read or changed
    kFailed = 4,    // memory, device or system failed
    kInterrupted = 130,
};
int exit_code(const Error& error);

// Prints "granary-cli: what: detail. advice" and gives the exit code.
int report_error(const Error& error, std::ostream& err);

// A whole file, at most `limit` bytes.
Result<std::string> read_file(const std::string& path, uint64_t limit);
// Writes beside the path and renames: a reader sees the old file or the new one.
Result<void> write_file_atomically(const std::string& path, std::string_view text);

}  // namespace granary::cli

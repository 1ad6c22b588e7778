// SPDX-License-Identifier: GPL-3.0-or-later
// What the subcommands share: exit codes, how errors look, files.
#pragma once

#include <ostream>
#include <string>
#include <string_view>

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

// Prints "granary-cli: what: detail. advice" as one line, control characters escaped, and gives the
// exit code.
int report_error(const Error& error, std::ostream& err);

// UTF-8 text with each control character but line ends and tabs as U+FFFD: for a terminal. Those
// of two bytes, U+0080 to U+009F, too: terminals obey U+009B as they obey ESC [.
std::string for_terminal(std::string_view text);

// A whole file, at most `limit` bytes.
Result<std::string> read_file(const std::string& path, uint64_t limit);
// An error where write_file_atomically would fail for want of a folder or of permission: for
// those who compute long before they write.
Result<void> check_writable(const std::string& path);
// Writes beside the path and renames: a reader sees the old file or the new one, and a signal
// leaves no half of it. A device or pipe is written to, a link is followed, neither is replaced.
Result<void> write_file_atomically(const std::string& path, std::string_view text);

}  // namespace granary::cli

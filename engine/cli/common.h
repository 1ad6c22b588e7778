// SPDX-License-Identifier: GPL-3.0-or-later
// What the subcommands share: exit codes, settings as options, how errors and log lines look.
#pragma once

#include <CLI/CLI.hpp>
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

// Settings of DESIGN 4 that act, as options of a subcommand that runs a model.
class SettingsOptions {
  public:
    void add_to(CLI::App& command);
    Result<Settings> settings() const;

  private:
    std::vector<std::pair<std::string, std::string>> values_;  // identifier, text as given
};

// A whole file, at most `limit` bytes.
Result<std::string> read_file(const std::string& path, uint64_t limit);
// Writes beside the path and renames: a reader sees the old file or the new one.
Result<void> write_file_atomically(const std::string& path, std::string_view text);

}  // namespace granary::cli

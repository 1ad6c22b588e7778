// SPDX-License-Identifier: GPL-3.0-or-later
// The settings as options of a subcommand. Apart from the rest, since CLI11 is slow to compile.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "granary/settings.h"

namespace granary::cli {

// All settings that act, for a subcommand that runs a model.
class SettingsOptions {
  public:
    void add_to(CLI::App& command);
    Result<Settings> settings() const;

  private:
    std::vector<std::pair<std::string, std::optional<std::string>>>
        values_;  // identifier, text as given
};

}  // namespace granary::cli

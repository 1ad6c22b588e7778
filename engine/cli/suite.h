// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "granary/settings.h"

namespace granary::cli {

struct SuiteOptions {
    std::string model;
    std::vector<uint32_t> rows;  // numbers of rows to run; empty: all
    bool json = false;
    std::optional<std::string> trace;  // file to write, of the last row that is run
    Settings settings;                 // device and threads; the rows decide on the others
};
// Contexts of 32K, 128K and 522,000 tokens, each with the K/V formats and budgets for which
// somebody would ask: what is measured, and of all other cells what the planner says. Of each row
// the budget of 522,000 tokens is once the smallest that is admitted: there the loan must shrink.
int long_context_suite(const SuiteOptions& options, std::ostream& out, std::ostream& err);

}  // namespace granary::cli

// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "granary/engine.h"

namespace granary::cli {

struct BenchOptions {
    std::string model;
    uint32_t prompt_tokens = 512, decode_tokens = 128, repeat = 1;
    uint32_t depth = 0;  // tokens read before anything is measured
    uint32_t stops = 0;  // of each run; see BenchStage
    // Depths, rising; then prompt_tokens, depth and repeat do not count.
    std::vector<uint32_t> sweep;
    bool json = false;
    std::optional<std::string> device_profile;  // files to write
    std::optional<std::string> trace;           // of the last run; see granary/trace.h
    Settings settings;
};
// Speeds, each token's time, where the time goes, what memory did, and the device's rates and
// limits as measured now.
int bench(const BenchOptions& options, std::ostream& out, std::ostream& err);

}  // namespace granary::cli

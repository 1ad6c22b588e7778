// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

#include "granary/engine.h"

namespace granary::cli {

struct BenchOptions {
    std::string model;
    uint32_t prompt_tokens = 512, decode_tokens = 128, repeat = 1;
    bool json = false;
    std::optional<std::string> device_profile;  // file to write
    Settings settings;
};
// Speeds, each token's time, what memory did, and the device's rates as measured now.
int bench(const BenchOptions& options, std::ostream& out, std::ostream& err);

// Of answered tokens' times. The worst one's cause is what the engine did for it, where that takes
// at least half of what it took above the median.
struct TokenTimes {
    double median = 0, p99 = 0, most = 0;  // seconds
    TokenTime worst;
    std::string cause;
};
// `link`: bytes a second at which missed experts come.
TokenTimes token_times(std::vector<TokenTime> tokens, double link);

}  // namespace granary::cli

// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "granary/engine.h"

namespace granary::cli {

struct LogitsOptions {
    std::string model, tokens_file, out_file;
    std::vector<uint32_t> positions;
    uint32_t greedy = 0;
    gpu::Arithmetic arithmetic = gpu::Arithmetic::fast;
    Settings settings;
};
// Writes {"vocab", "tokens", "argmax", "logits": {position: values}, "greedy"}; returns the exit
// code.
int logits(const LogitsOptions& options, std::ostream& err);

}  // namespace granary::cli

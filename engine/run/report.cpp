// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>
#include <cstdio>

#include "granary/engine.h"

namespace granary {
namespace {

std::string seconds_text(double seconds) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, seconds < 0.1 ? "%.3f s" : "%.1f s", seconds);
    return buffer;
}

std::string counted(uint64_t n, const char* one, const char* many) {
    return grouped(n) + " " + (n == 1 ? one : many);
}

}  // namespace

std::string Report::kept_line() const {
    return "kept " + grouped(kept_tokens) + " of " + counted(prompt_tokens, "token", "tokens") +
           ", read " + grouped(read_tokens);
}

std::string Report::memory_line() const {
    std::string line = "Read " + counted(read_tokens, "token", "tokens") + " in " +
                       seconds_text(read_seconds) + "; the loan took " +
                       counted(loan_granules, "granule", "granules");
    if (loan_experts) line += " from " + counted(loan_experts, "cold expert", "cold experts");
    if (shrank_to)
        line += ", shrank from " + grouped(shrank_from) + " to " + grouped(shrank_to) + " tokens";
    line += loan_granules == 1 ? " and gave it back" : " and gave them back";
    line += kv_granules_added ? "; K/V +" + grouped(kv_granules_added) : "; K/V as before";
    line += "; new driver memory: ";
    line += driver_allocations ? counted(driver_allocations, "allocation", "allocations") : "none";
    return line;
}

std::string_view phase_name(Phase phase) {
    constexpr std::string_view kNames[kPhases] = {"dense", "attention", "experts", "waiting"};
    return kNames[static_cast<size_t>(phase)];
}

uint32_t answer_room(uint32_t max_context) {
    return std::min(1024u, max_context / 4);
}

}  // namespace granary

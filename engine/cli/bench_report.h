// SPDX-License-Identifier: GPL-3.0-or-later
// What a bench found out, as a table for people and as JSON.
#pragma once

#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "granary/engine.h"

namespace granary::cli {

// Of answered tokens' times. The worst one's cause is what the engine did for it, where that takes
// at least half of what it took above the median.
struct TokenTimes {
    double median = 0, p99 = 0, most = 0;  // seconds
    TokenTime worst;
    std::string cause;
};
// `gather`: bytes a second at which missed experts come.
TokenTimes token_times(std::vector<TokenTime> tokens, double gather);

// Of several runs, tokens a second.
struct Speed {
    double median = 0, least = 0, most = 0;
};
Speed speed_of(std::vector<double> runs);

// One stage: what was measured, and what the planner says knowing the rates.
struct StageReport {
    BenchStage stage;
    BenchResult last;  // of the runs
    Speed reading, answering;
    TokenTimes tokens;            // of all runs
    std::vector<StopTime> stops;  // likewise, the quickest first
    double predicted_reading = 0;
    double predicted_answering = 0;  // as if every expert were picked as often
    double predicted_at_hits = 0;    // with the share of hits that was measured
    double uniform_hits = 0;         // the share of hits if every expert were picked as often
};
// Fills what is predicted, by the planner with `rates`.
void predict(const Engine& engine, const Rates& rates, StageReport& report);

struct BenchReport {
    std::vector<StageReport> stages;
    Rates rates;
    Limits limits;
    uint64_t free_before = 0, free_after = 0;  // as the driver says: once loaded, and at the end
};

nlohmann::ordered_json json_of(const StageReport& report);
// "6144 from 0, 5632 from 423,936"
std::string steps_text(const Report& reading);
// Share of picked experts that had a slot while the stage answered.
double hit_share(const BenchResult& result);

void print_json(std::ostream& out, const Engine& engine, const BenchReport& report);
void print_text(std::ostream& out, const Engine& engine, const BenchReport& report);

}  // namespace granary::cli

// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cli/bench.h"

#include <algorithm>
#include <ostream>

#include "engine/cli/bench_report.h"
#include "engine/cli/common.h"
#include "engine/cli/trace_recorder.h"

namespace granary::cli {
namespace {

// A first stage that only brings the conversation to its depth is not reported.
struct Stages {
    std::vector<BenchStage> all;
    bool first_counts = true;
};

Stages stages_of(const BenchOptions& options) {
    Stages stages;
    if (options.sweep.empty()) {
        stages.first_counts = options.depth == 0;
        if (options.depth) stages.all.push_back({options.depth, 0});
        stages.all.push_back({options.prompt_tokens, options.decode_tokens, options.stops});
        return stages;
    }
    uint64_t cells = 0;
    for (const uint64_t depth : options.sweep) {
        const auto tokens = static_cast<uint32_t>(depth - std::min(depth, cells));
        stages.all.push_back({tokens, options.decode_tokens});
        cells = std::max(depth, cells) + options.decode_tokens;
    }
    return stages;
}

Result<BenchReport> measure(Engine& engine, const BenchOptions& options) {
    const Stages stages = stages_of(options);
    BenchReport report;
    report.free_before = engine.free_bytes_now();
    // The first run touches pages and threads; it is not counted.
    const BenchStage& first = stages.all.front();
    const BenchStage warm{std::min(first.prompt_tokens, 64u), std::min(options.decode_tokens, 16u)};
    if (auto r = engine.bench({&warm, 1}); !r) return tl::unexpected(r.error());

    std::vector<std::vector<BenchResult>> runs;
    const uint32_t repeat = options.sweep.empty() ? std::max(options.repeat, 1u) : 1;
    for (uint32_t i = 0; i < repeat; ++i) {
        std::optional<TraceRecorder> trace;
        if (options.trace && i + 1 == repeat) trace.emplace(engine);
        auto results = engine.bench(stages.all);
        if (!results) return tl::unexpected(results.error());
        if (trace)
            if (auto r = trace->write(*options.trace); !r) return tl::unexpected(r.error());
        runs.push_back(std::move(*results));
    }
    report.free_after = engine.free_bytes_now();
    auto rates = engine.measure_rates();
    if (!rates) return tl::unexpected(rates.error());
    report.rates = *rates;
    auto limits = engine.measure_limits();
    if (!limits) return tl::unexpected(limits.error());
    report.limits = *limits;

    for (size_t n = stages.first_counts ? 0 : 1; n < stages.all.size(); ++n) {
        StageReport stage;
        stage.stage = stages.all[n];
        std::vector<double> reading, answering;
        std::vector<TokenTime> tokens;
        for (const std::vector<BenchResult>& run : runs) {
            reading.push_back(run[n].prefill_tok_s);
            answering.push_back(run[n].decode_tok_s);
            tokens.insert(tokens.end(), run[n].tokens.begin(), run[n].tokens.end());
            stage.stops.insert(stage.stops.end(), run[n].stops.begin(), run[n].stops.end());
        }
        std::sort(stage.stops.begin(), stage.stops.end(),
                  [](const StopTime& a, const StopTime& b) { return a.seconds < b.seconds; });
        stage.last = runs.back()[n];
        stage.reading = speed_of(std::move(reading));
        stage.answering = speed_of(std::move(answering));
        stage.tokens = token_times(std::move(tokens), rates->gather);
        predict(engine, *rates, stage);
        report.stages.push_back(std::move(stage));
    }
    return report;
}

}  // namespace

int bench(const BenchOptions& options, std::ostream& out, std::ostream& err) {
    for (const auto& path : {options.device_profile, options.trace})
        if (path)
            if (auto r = check_writable(*path); !r) return report_error(r.error(), err);
    EngineOptions engine_options;
    engine_options.settings = options.settings;
    if (engine_options.settings.max_context == 0) {
        // A bench reads as many tokens as it is told, whatever the model was trained for.
        uint64_t tokens = 0;
        const std::vector<BenchStage> stages = stages_of(options).all;
        for (const BenchStage& stage : stages) tokens += stage.cells();
        if (stages.front().prompt_tokens == 0) ++tokens;  // see Engine::bench
        engine_options.settings.max_context =
            static_cast<uint32_t>(std::clamp<uint64_t>(tokens, 512, kLongestContext));
    }
    auto engine = Engine::open(options.model, engine_options);
    if (!engine) return report_error(engine.error(), err);
    const auto report = measure(**engine, options);
    if (!report) return report_error(report.error(), err);
    options.json ? print_json(out, **engine, *report) : print_text(out, **engine, *report);
    if (options.device_profile) {
        auto written = write_file_atomically(*options.device_profile,
                                             (*engine)->profile(report->rates).json());
        if (!written) return report_error(written.error(), err);
    }
    return kOk;
}

}  // namespace granary::cli

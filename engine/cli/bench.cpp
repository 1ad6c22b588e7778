// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cli/bench.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

#include "engine/cli/common.h"
#include "engine/cli/table.h"

namespace granary::cli {
namespace {

using nlohmann::ordered_json;

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
}

std::string milliseconds(double seconds) {
    return fixed(seconds * 1e3, 2) + " ms";
}

// What a run shows, besides the engine itself.
struct Bench {
    double prefill = 0, decode = 0;                      // medians of the runs, tok/s
    double predicted_prefill = 0, predicted_decode = 0;  // by `rates`
    Report reading;                                      // of the last run
    TokenTimes tokens;                                   // of all runs
    Rates rates;
};

// What the planner would have said, knowing the rates.
void predict(const Engine& engine, const BenchOptions& options, Bench& bench) {
    const Planner planner(engine.model(), engine.planner().device(), bench.rates);
    const Plan& plan = engine.plan();
    if (options.prompt_tokens) {
        const auto schedule = planner.schedule(plan, {}, 0, options.prompt_tokens);
        if (schedule)
            bench.predicted_prefill =
                options.prompt_tokens /
                planner.predict_prompt(plan, *schedule, options.prompt_tokens).seconds;
    }
    if (options.decode_tokens)
        bench.predicted_decode =
            1 / planner.predict_decode(plan, options.prompt_tokens + options.decode_tokens / 2);
}

void print_json(std::ostream& out, const Engine& engine, const Bench& bench) {
    const Plan& plan = engine.plan();
    ordered_json json;
    json["prefill_tok_s"] = bench.prefill;
    json["decode_tok_s"] = bench.decode;
    json["predicted_prefill_tok_s"] = bench.predicted_prefill;
    json["predicted_decode_tok_s"] = bench.predicted_decode;
    json["memory_seconds_share"] =
        bench.reading.memory_seconds / std::max(bench.reading.read_seconds, 1e-9);
    ordered_json schedule = ordered_json::array();
    for (const ScheduledChunks& part : bench.reading.chunks)
        schedule.push_back({{"from", part.from}, {"chunk", part.chunk}});
    json["schedule"] = schedule;
    json["kv_granules_moved"] = bench.reading.kv_granules_added;
    json["loan_granules_moved"] = bench.reading.loan_granules;
    json["token_seconds"] = {{"p50", bench.tokens.median},
                             {"p99", bench.tokens.p99},
                             {"max", bench.tokens.most},
                             {"worst_cell", bench.tokens.worst.cell},
                             {"worst_bytes_copied", bench.tokens.worst.bytes_copied},
                             {"worst_kv_granules", bench.tokens.worst.kv_granules},
                             {"worst_cause", bench.tokens.cause}};
    json["rates"] = ordered_json::parse(engine.profile(bench.rates).json())["rates"];
    json["budget_bytes"] = plan.budget_bytes;
    json["granule_bytes"] = plan.granule_bytes;
    const auto bytes = engine.bytes();
    for (int i = 0; i < kOwners; ++i)
        json["bytes"][std::string(owner_name(static_cast<Owner>(i)))] = bytes[i];
    json["driver_allocations_after_load"] = engine.driver_allocations_after_load();
    out << json.dump(2) << "\n";
}

void print_text(std::ostream& out, const Engine& engine, const BenchOptions& options,
                const Bench& bench) {
    const Plan& plan = engine.plan();
    out << "device        " << engine.device().name << "\n";
    if (options.prompt_tokens) {
        out << "reading       " << fixed(bench.prefill, 0) << " tok/s (" << options.prompt_tokens
            << " tokens, steps of " << plan.chunk << "; predicted "
            << fixed(bench.predicted_prefill, 0) << ")\n";
        const Report& reading = bench.reading;
        out << "  steps       ";
        for (size_t i = 0; i < reading.chunks.size(); ++i)
            out << (i ? ", " : "") << reading.chunks[i].chunk << " from "
                << grouped(reading.chunks[i].from);
        out << "\n  memory      " << reading.kv_granules_added << " granules to K/V, "
            << reading.loan_granules << " lent, "
            << fixed(100 * reading.memory_seconds / std::max(reading.read_seconds, 1e-9), 2)
            << " % of the time\n";
    }
    if (options.decode_tokens) {
        out << "answering     " << fixed(bench.decode, 0) << " tok/s (" << options.decode_tokens
            << " tokens; predicted " << fixed(bench.predicted_decode, 0) << ")\n"
            << "  a token     " << milliseconds(bench.tokens.median) << " median, "
            << milliseconds(bench.tokens.p99) << " 99th percentile, "
            << milliseconds(bench.tokens.most) << " at most\n"
            << "  the worst   cell " << grouped(bench.tokens.worst.cell) << ": "
            << bench.tokens.cause << "\n";
    }
    const Rates& rates = bench.rates;
    out << "rates         products " << fixed(rates.products / 1e9, 0) << " GFLOP/s, attention "
        << fixed(rates.attention / 1e9, 0) << " GFLOP/s, weights " << fixed(rates.weights / 1e9, 1)
        << " GB/s, link " << fixed(rates.link / 1e9, 1) << " GB/s, memory "
        << fixed(rates.memory / 1e9, 1) << " GB/s, cells " << fixed(rates.cells / 1e9, 1)
        << " G/s, layer " << fixed(rates.layer * 1e6, 0) << " us\n";
    out << "budget        " << format_bytes(plan.budget_bytes) << " in "
        << plan.budget_bytes / plan.granule_bytes << " granules of "
        << format_bytes(plan.granule_bytes) << "\n";
    const auto bytes = engine.bytes();
    Table table({}, {false, false});
    for (int i = 0; i < kOwners; ++i)
        if (bytes[i])
            table.add({std::string(owner_name(static_cast<Owner>(i))), format_bytes(bytes[i])});
    table.print(out);
    out << "driver allocations after load: " << engine.driver_allocations_after_load() << "\n";
}

}  // namespace

TokenTimes token_times(std::vector<TokenTime> tokens, double link) {
    TokenTimes times;
    if (tokens.empty()) return times;
    std::sort(tokens.begin(), tokens.end(),
              [](const TokenTime& a, const TokenTime& b) { return a.seconds < b.seconds; });
    const auto at = [&](double share) {
        return tokens[static_cast<size_t>(share * static_cast<double>(tokens.size() - 1))].seconds;
    };
    times.median = at(0.5);
    times.p99 = tokens[(tokens.size() * 99 + 99) / 100 - 1].seconds;  // 99 % take no longer
    times.worst = tokens.back();
    times.most = times.worst.seconds;
    const double copies = static_cast<double>(times.worst.bytes_copied) / link;
    if (times.worst.kv_granules)
        times.cause = "K/V grew by " + std::to_string(times.worst.kv_granules) +
                      (times.worst.kv_granules == 1 ? " granule" : " granules");
    if (copies >= (times.most - times.median) / 2)
        times.cause += (times.cause.empty() ? "" : ", ") + std::string("missed experts, ") +
                       format_bytes(times.worst.bytes_copied) + " copied";
    if (times.cause.empty()) times.cause = "no cause in the engine: the machine";
    return times;
}

int bench(const BenchOptions& options, std::ostream& out, std::ostream& err) {
    if (options.device_profile)
        if (auto r = check_writable(*options.device_profile); !r)
            return report_error(r.error(), err);
    EngineOptions engine_options;
    engine_options.settings = options.settings;
    if (engine_options.settings.max_context == 0) {
        // A bench reads as many tokens as it is told, whatever the model was trained for.
        const uint64_t tokens = uint64_t{options.prompt_tokens} + options.decode_tokens;
        engine_options.settings.max_context =
            static_cast<uint32_t>(std::clamp<uint64_t>(tokens, 512, 1u << 20));
    }
    auto engine = Engine::open(options.model, engine_options);
    if (!engine) return report_error(engine.error(), err);
    // The first run touches pages and threads; it is not counted.
    auto warm = (*engine)->bench(std::min(options.prompt_tokens, 64u),
                                 std::min(options.decode_tokens, 16u));
    if (!warm) return report_error(warm.error(), err);
    std::vector<double> prefill, decode;
    std::vector<TokenTime> tokens;
    Bench bench;
    for (uint32_t i = 0; i < std::max(options.repeat, 1u); ++i) {
        auto result = (*engine)->bench(options.prompt_tokens, options.decode_tokens);
        if (!result) return report_error(result.error(), err);
        prefill.push_back(result->prefill_tok_s);
        decode.push_back(result->decode_tok_s);
        tokens.insert(tokens.end(), result->tokens.begin(), result->tokens.end());
        bench.reading = result->reading;
    }
    auto rates = (*engine)->measure_rates();
    if (!rates) return report_error(rates.error(), err);
    bench.rates = *rates;
    bench.prefill = median(prefill);
    bench.decode = median(decode);
    bench.tokens = token_times(std::move(tokens), rates->link);
    predict(**engine, options, bench);
    options.json ? print_json(out, **engine, bench) : print_text(out, **engine, options, bench);
    if (options.device_profile) {
        auto written =
            write_file_atomically(*options.device_profile, (*engine)->profile(*rates).json());
        if (!written) return report_error(written.error(), err);
    }
    return kOk;
}

}  // namespace granary::cli

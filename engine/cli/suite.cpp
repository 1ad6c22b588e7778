// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cli/suite.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "engine/cli/bench_report.h"
#include "engine/cli/common.h"
#include "engine/cli/table.h"
#include "engine/cli/trace_recorder.h"

namespace granary::cli {
namespace {

using gpu::KvFormat;
using nlohmann::ordered_json;

constexpr uint32_t kLongest = 524288, kChunk = 6144, kAnswer = 64;
constexpr uint32_t kLengths[] = {32768, 131072, 522000};
constexpr KvFormat kFormats[] = {KvFormat::f16, KvFormat::int8, KvFormat::k8v4, KvFormat::q4};
// Of cards with 8, 12, 16 and 24 GB, of which 1.5 GiB are left to the desktop.
constexpr double kBudgets[] = {6.5, 10.5, 14.5, 22.5};  // GiB

struct Cell {
    uint32_t tokens = 0;
    KvFormat format = KvFormat::f16;
    double budget = 0;  // GiB; 0: the smallest that is admitted
    bool run = false;
};

std::vector<Cell> cells() {
    std::vector<Cell> all;
    const auto add = [&](uint32_t tokens, KvFormat format, double budget, bool run) {
        all.push_back({tokens, format, budget, run});
    };
    // What is run, in the order of rows.
    add(522000, KvFormat::k8v4, 14.5, true);
    add(522000, KvFormat::int8, 14.5, true);
    add(522000, KvFormat::k8v4, 0, true);
    add(522000, KvFormat::int8, 0, true);
    add(522000, KvFormat::q4, 0, true);
    for (const uint32_t tokens : {32768u, 131072u})
        for (const double budget : kBudgets) add(tokens, KvFormat::k8v4, budget, true);
    const size_t run = all.size();
    for (const uint32_t tokens : kLengths)
        for (const KvFormat format : kFormats)
            for (const double budget : kBudgets) {
                const auto same = [&](const Cell& cell) {
                    return cell.tokens == tokens && cell.format == format && cell.budget == budget;
                };
                if (std::none_of(all.begin(), all.begin() + static_cast<ptrdiff_t>(run), same))
                    add(tokens, format, budget, false);
            }
    return all;
}

Settings settings_of(const Cell& cell, const Settings& given) {
    Settings settings = given;
    // Who wants no more than a part of the longest asks for no more.
    settings.max_context = cell.tokens > kLongest / 2 ? kLongest : cell.tokens + 1024;
    settings.prefill = {AutoCount::Kind::number, kChunk};
    settings.kv = cell.format;
    settings.vram_budget = static_cast<uint64_t>(cell.budget * (1 << 30));
    return settings;
}

// The smallest budget that the planner admits for these settings, or its refusal of the largest.
Result<uint64_t> smallest_budget(const Planner& planner, Settings settings) {
    constexpr uint64_t kUnit = uint64_t{2} << 20;
    uint64_t low = 0, high = (uint64_t{1} << 40) / kUnit;  // refused, admitted
    settings.vram_budget = high * kUnit;
    if (auto plan = planner.plan(settings); !plan) return tl::unexpected(plan.error());
    while (high - low > 1) {
        const uint64_t middle = (low + high) / 2;
        settings.vram_budget = middle * kUnit;
        (planner.plan(settings) ? high : low) = middle;
    }
    return high * kUnit;
}

struct Row {
    uint32_t number = 0;
    Cell cell;
    uint64_t budget = 0;
    std::string refused;
    std::optional<StageReport> measured;
    double predicted_reading = 0, predicted_answering = 0;
    uint64_t kv_bytes = 0;
    uint64_t allocations = 0, free_before = 0, free_after = 0;
    bool shrank() const { return measured && measured->last.reading.shrank_to > 0; }
};

std::string format_name(KvFormat format) {
    return std::string(gpu::kv_format_name(format));
}

void foretell(const Planner& planner, const Settings& settings, Row& row) {
    const auto plan = planner.plan(settings);
    if (!plan) {
        row.refused = plan.error().message();
        return;
    }
    row.kv_bytes = planner.bytes_at(*plan, row.cell.tokens,
                                    plan->chunk_at_max)[static_cast<size_t>(Owner::kv)];
    const auto schedule = planner.schedule(*plan, {}, 0, row.cell.tokens);
    if (!schedule) {
        row.refused = schedule.error().message();
        return;
    }
    row.predicted_reading =
        row.cell.tokens / planner.predict_prompt(*plan, *schedule, row.cell.tokens).seconds;
    row.predicted_answering = 1 / planner.predict_decode(*plan, row.cell.tokens);
}

Result<void> run_row(Engine& engine, std::optional<Rates>& rates,
                     const std::optional<std::string>& trace_path, Row& row) {
    row.free_before = engine.free_bytes_now();
    if (!rates) {
        auto measured = engine.measure_rates();
        if (!measured) return tl::unexpected(measured.error());
        rates = *measured;
    }
    StageReport report;
    report.stage = {row.cell.tokens, kAnswer};
    std::optional<TraceRecorder> trace;
    if (trace_path) trace.emplace(engine);
    auto results = engine.bench({&report.stage, 1});
    if (!results) return tl::unexpected(results.error());
    if (trace)
        if (auto r = trace->write(*trace_path); !r) return r;
    row.free_after = engine.free_bytes_now();
    row.allocations = engine.driver_allocations_after_load();
    report.last = std::move(results->front());
    report.reading = speed_of({report.last.prefill_tok_s});
    report.answering = speed_of({report.last.decode_tok_s});
    report.tokens = token_times(report.last.tokens, rates->gather);
    predict(engine, *rates, report);
    row.predicted_reading = report.predicted_reading;
    row.predicted_answering = report.predicted_at_hits;
    row.measured = std::move(report);
    return {};
}

ordered_json json_of_row(const Row& row) {
    ordered_json json;
    json["row"] = row.number;
    json["tokens"] = row.cell.tokens;
    json["kv"] = format_name(row.cell.format);
    json["budget_bytes"] = row.budget;
    json["smallest"] = row.cell.budget == 0;
    if (!row.refused.empty()) {
        json["refused"] = row.refused;
        return json;
    }
    json["kv_bytes"] = row.kv_bytes;
    json["predicted_prefill_tok_s"] = row.predicted_reading;
    json["predicted_decode_tok_s"] = row.predicted_answering;
    if (!row.measured) return json;
    json["shrank"] = row.shrank();
    json["measured"] = json_of(*row.measured);
    json["driver_allocations_after_load"] = row.allocations;
    json["free_bytes_before"] = row.free_before;
    json["free_bytes_after"] = row.free_after;
    return json;
}

Table::Row text_of(const Row& row) {
    const std::string budget = format_bytes(row.budget) + (row.cell.budget == 0 ? " *" : "");
    Table::Row text{row.cell.run ? std::to_string(row.number) : "", grouped(row.cell.tokens),
                    format_name(row.cell.format), budget};
    if (!row.refused.empty()) {
        text.push_back("refused");
        return text;
    }
    const auto add = [&](std::string word) { text.push_back(std::move(word)); };
    const StageReport* const measured = row.measured ? &*row.measured : nullptr;
    add(measured ? fixed(measured->reading.median, 0) : "");
    add(fixed(row.predicted_reading, 0));
    add(measured ? fixed(measured->answering.median, 0) : "");
    add(fixed(row.predicted_answering, 0));
    add(format_bytes(row.kv_bytes));
    if (!measured) return text;
    const BenchResult& last = measured->last;
    add(grouped(last.experts_before) + " > " + grouped(last.experts_after));
    add(format_bytes(last.reading.bytes_streamed));
    add(fixed(100 * last.reading.memory_seconds / last.reading.read_seconds, 2) + " %");
    add(std::to_string(row.allocations) + ", " +
        std::to_string(static_cast<int64_t>(row.free_before - row.free_after)));
    add(steps_text(last.reading));
    return text;
}

}  // namespace

int long_context_suite(const SuiteOptions& options, std::ostream& out, std::ostream& err) {
    const std::vector<Cell> all = cells();
    const auto runnable =
        std::count_if(all.begin(), all.end(), [](const Cell& cell) { return cell.run; });
    for (const uint32_t row : options.rows)
        if (row > runnable)
            return report_error(
                {ErrorKind::invalid_argument, "the suite has no row " + std::to_string(row), "",
                 "It runs rows 1 to " + std::to_string(runnable) + "; 0 runs none"},
                err);
    if (options.trace)
        if (auto r = check_writable(*options.trace); !r) return report_error(r.error(), err);
    // Small at first: what the device's planner says decides on the rows.
    EngineOptions engine_options;
    engine_options.settings = options.settings;
    engine_options.settings.max_context = 4096;
    auto engine = Engine::open(options.model, engine_options);
    if (!engine) return report_error(engine.error(), err);
    std::optional<Rates> rates;
    std::vector<Row> rows;
    uint32_t number = 0;
    for (const Cell& cell : all) {
        Row row;
        row.number = ++number;
        row.cell = cell;
        Settings settings = settings_of(cell, options.settings);
        const Planner planner =
            rates ? (*engine)->planner().corrected(*rates) : (*engine)->planner();
        if (cell.budget == 0) {
            const auto smallest = smallest_budget(planner, settings);
            if (!smallest) return report_error(smallest.error(), err);
            settings.vram_budget = *smallest;
        }
        row.budget = settings.vram_budget;
        foretell(planner, settings, row);
        const bool asked =
            options.rows.empty() ||
            std::find(options.rows.begin(), options.rows.end(), number) != options.rows.end();
        if (cell.run && asked && row.refused.empty()) {
            err << "row " << number << ": " << grouped(cell.tokens) << " tokens, "
                << format_name(cell.format) << ", " << format_bytes(row.budget) << std::endl;
            if (auto r = (*engine)->apply(settings); !r) return report_error(r.error(), err);
            if (auto r = run_row(**engine, rates, options.trace, row); !r)
                return report_error(r.error(), err);
            err << "  " << fixed(row.measured->reading.median, 0) << " tok/s reading, "
                << fixed(row.measured->answering.median, 0) << " answering" << std::endl;
        }
        rows.push_back(std::move(row));
    }
    // Rows in front of the first that was run were foretold by rates that nobody had measured.
    for (Row& row : rows) {
        if (!rates || row.measured || !row.refused.empty()) continue;
        Settings settings = settings_of(row.cell, options.settings);
        settings.vram_budget = row.budget;
        foretell((*engine)->planner().corrected(*rates), settings, row);
    }
    if (options.json) {
        ordered_json json = ordered_json::array();
        for (const Row& row : rows) json.push_back(json_of_row(row));
        out << json.dump(2) << "\n";
        return kOk;
    }
    Table table(
        {"row", "tokens", "kv", "budget", "reading", "predicted", "answering", "predicted", "K/V",
         "experts", "streamed", "memory", "driver", "steps"},
        {true, true, false, true, true, true, true, true, true, true, true, true, true, false});
    for (const Row& row : rows) table.add(text_of(row));
    table.print(out);
    for (const Row& row : rows)
        if (!row.refused.empty())
            out << "  " << grouped(row.cell.tokens) << ", " << format_name(row.cell.format) << ", "
                << format_bytes(row.budget) << ": " << row.refused << "\n";
    out << "* the smallest budget that is admitted. Speeds in tokens a second. driver: allocations "
           "after load, bytes that it has less afterwards\n";
    return kOk;
}

}  // namespace granary::cli

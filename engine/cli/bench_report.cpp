// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cli/bench_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "engine/cli/table.h"

namespace granary::cli {
namespace {

using nlohmann::ordered_json;

std::string milliseconds(double seconds) {
    return fixed(seconds * 1e3, 2) + " ms";
}
std::string percent(double share) {
    return fixed(100 * share, 1) + " %";
}
double share_of(double part, double whole) {
    return part / std::max(whole, 1e-9);
}
// Bytes a second over the link while a prompt was read.
double streaming(const BenchResult& result) {
    return share_of(static_cast<double>(result.reading.bytes_streamed),
                    result.reading.read_seconds);
}
std::string spread(const Speed& speed) {
    if (speed.least == speed.most) return fixed(speed.median, 0) + " tok/s";
    return fixed(speed.median, 0) + " tok/s [" + fixed(speed.least, 0) + " to " +
           fixed(speed.most, 0) + "]";
}

ordered_json json_of(const Speed& speed) {
    return {{"median", speed.median}, {"least", speed.least}, {"most", speed.most}};
}

void print_reading(std::ostream& out, const StageReport& report, const Limits& limits) {
    const BenchResult& last = report.last;
    const Report& reading = last.reading;
    out << "reading       " << spread(report.reading) << " (" << grouped(report.stage.prompt_tokens)
        << " tokens from " << grouped(last.depth) << "; predicted "
        << fixed(report.predicted_reading, 0) << ")\n  steps       " << steps_text(reading)
        << "\n  time        ";
    for (int i = 0; i < kPhases; ++i)
        out << (i ? ", " : "") << phase_name(static_cast<Phase>(i)) << " "
            << percent(share_of(last.phases[i], reading.read_seconds));
    out << "\n  memory      " << reading.kv_granules_added << " granules to K/V, "
        << reading.loan_granules << " lent, "
        << fixed(100 * share_of(reading.memory_seconds, reading.read_seconds), 2)
        << " % of the time; experts with a slot " << grouped(last.experts_before) << ", then "
        << grouped(last.experts_after) << "\n";
    if (reading.bytes_streamed == 0) return;
    out << "  streamed    " << format_bytes(reading.bytes_streamed) << ", "
        << fixed(streaming(last) / 1e9, 1) << " GB/s";
    if (limits.link > 0) out << ", " << percent(streaming(last) / limits.link) << " of a long copy";
    out << "\n";
}

void print_answering(std::ostream& out, const StageReport& report) {
    out << "answering     " << spread(report.answering) << " ("
        << grouped(report.stage.decode_tokens) << " tokens from "
        << grouped(report.last.depth + report.stage.prompt_tokens) << "; predicted "
        << fixed(report.predicted_at_hits, 0) << ")\n"
        << "  a token     " << milliseconds(report.tokens.median) << " median, "
        << milliseconds(report.tokens.p99) << " 99th percentile, "
        << milliseconds(report.tokens.most) << " at most\n"
        << "  the worst   cell " << grouped(report.tokens.worst.cell) << ": " << report.tokens.cause
        << "\n";
    if (report.last.hits + report.last.misses)
        out << "  experts     " << percent(hit_share(report.last))
            << " were there; if all were picked as often, " << percent(report.uniform_hits)
            << " would be and " << fixed(report.predicted_answering, 0) << " tok/s predicted\n";
    if (report.last.left_to_cpu)
        out << "  processor   computed " << grouped(report.last.left_to_cpu) << " of "
            << grouped(report.last.misses) << " that were missed\n";
}

void print_stops(std::ostream& out, const std::vector<StopTime>& stops) {
    std::vector<double> seconds;
    uint32_t from = stops.front().depth, to = from;
    for (const StopTime& stop : stops) {
        seconds.push_back(stop.seconds);
        from = std::min(from, stop.depth);
        to = std::max(to, stop.depth);
    }
    const Speed times = speed_of(std::move(seconds));
    out << "stopping      " << milliseconds(times.median) << " median, " << milliseconds(times.most)
        << " at most (" << stops.size() << (stops.size() == 1 ? " Stop" : " Stops")
        << " in the midst of reading on from " << grouped(from);
    if (to > from) out << " to " << grouped(to);
    out << ")\n";
}

void print_sweep(std::ostream& out, const BenchReport& report) {
    Table table(
        {"from", "to", "reading", "predicted", "answering", "predicted", "p99", "hits", "steps"},
        {true, true, true, true, true, true, true, true, false});
    for (const StageReport& stage : report.stages) {
        const uint32_t to = stage.last.depth + stage.stage.prompt_tokens;
        std::string steps;
        for (const ScheduledChunks& part : stage.last.reading.chunks)
            steps += (steps.empty() ? "" : ", ") + std::to_string(part.chunk);
        table.add({grouped(stage.last.depth), grouped(to), fixed(stage.reading.median, 0),
                   fixed(stage.predicted_reading, 0), fixed(stage.answering.median, 0),
                   fixed(stage.predicted_at_hits, 0), milliseconds(stage.tokens.p99),
                   percent(hit_share(stage.last)), steps});
    }
    table.print(out);
}

}  // namespace

std::string steps_text(const Report& reading) {
    std::string text;
    for (const ScheduledChunks& part : reading.chunks)
        text +=
            (text.empty() ? "" : ", ") + std::to_string(part.chunk) + " from " + grouped(part.from);
    return text;
}

double hit_share(const BenchResult& result) {
    const uint64_t picks = result.hits + result.misses;
    return picks ? static_cast<double>(result.hits) / static_cast<double>(picks) : 1;
}

void predict(const Engine& engine, const Rates& rates, StageReport& report) {
    const Planner planner(engine.model(), engine.planner().device(), rates);
    const Plan& plan = engine.plan();
    const uint32_t from = report.last.depth, to = from + report.stage.prompt_tokens;
    if (report.stage.prompt_tokens) {
        const auto schedule = planner.schedule(plan, {}, from, to);
        if (schedule && !schedule->empty())
            report.predicted_reading =
                (to - from) / planner.predict_prompt(plan, *schedule, to).seconds;
    }
    if (report.stage.decode_tokens == 0) return;
    const uint32_t middle = to + report.stage.decode_tokens / 2;
    report.uniform_hits = planner.uniform_hits(plan, middle);
    report.predicted_answering = 1 / planner.predict_decode(plan, middle, report.uniform_hits);
    report.predicted_at_hits = 1 / planner.predict_decode(plan, middle, hit_share(report.last));
}

ordered_json json_of(const StageReport& report) {
    const BenchResult& last = report.last;
    const Report& reading = last.reading;
    ordered_json json;
    json["depth"] = last.depth;
    json["prompt_tokens"] = report.stage.prompt_tokens;
    json["decode_tokens"] = report.stage.decode_tokens;
    json["prefill_tok_s"] = report.reading.median;
    json["prefill_runs"] = json_of(report.reading);
    json["predicted_prefill_tok_s"] = report.predicted_reading;
    for (int i = 0; i < kPhases; ++i)
        json["prefill_seconds"][std::string(phase_name(static_cast<Phase>(i)))] = last.phases[i];
    json["prefill_seconds"]["memory"] = reading.memory_seconds;
    json["prefill_seconds"]["all"] = reading.read_seconds;
    json["memory_seconds_share"] = share_of(reading.memory_seconds, reading.read_seconds);
    json["bytes_streamed"] = reading.bytes_streamed;
    json["streamed_bytes_per_s"] = streaming(last);
    ordered_json schedule = ordered_json::array();
    for (const ScheduledChunks& part : reading.chunks)
        schedule.push_back({{"from", part.from}, {"chunk", part.chunk}});
    json["schedule"] = schedule;
    json["kv_granules_moved"] = reading.kv_granules_added;
    json["loan_granules_moved"] = reading.loan_granules;
    json["experts_before"] = last.experts_before;
    json["experts_after"] = last.experts_after;
    for (const StopTime& stop : report.stops)
        json["stops"].push_back({{"seconds", stop.seconds}, {"depth", stop.depth}});
    json["decode_tok_s"] = report.answering.median;
    json["decode_runs"] = json_of(report.answering);
    json["predicted_decode_tok_s"] = report.predicted_at_hits;
    json["predicted_decode_tok_s_uniform"] = report.predicted_answering;
    json["hit_share"] = hit_share(last);
    json["hit_share_uniform"] = report.uniform_hits;
    json["experts_missed"] = last.misses;
    json["experts_left_to_cpu"] = last.left_to_cpu;
    json["token_seconds"] = {{"p50", report.tokens.median},
                             {"p99", report.tokens.p99},
                             {"max", report.tokens.most},
                             {"worst_cell", report.tokens.worst.cell},
                             {"worst_bytes_copied", report.tokens.worst.bytes_copied},
                             {"worst_kv_granules", report.tokens.worst.kv_granules},
                             {"worst_cause", report.tokens.cause}};
    return json;
}

TokenTimes token_times(std::vector<TokenTime> tokens, double gather) {
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
    const double copies = static_cast<double>(times.worst.bytes_copied) / gather;
    if (times.worst.kv_granules)
        times.cause = "K/V grew by " + std::to_string(times.worst.kv_granules) +
                      (times.worst.kv_granules == 1 ? " granule" : " granules");
    if (copies >= (times.most - times.median) / 2)
        times.cause += (times.cause.empty() ? "" : ", ") + std::string("missed experts, ") +
                       format_bytes(times.worst.bytes_copied) + " copied";
    if (times.cause.empty()) times.cause = "no cause in the engine: the machine";
    return times;
}

Speed speed_of(std::vector<double> runs) {
    if (runs.empty()) return {};
    std::sort(runs.begin(), runs.end());
    return {runs[runs.size() / 2], runs.front(), runs.back()};
}

void print_json(std::ostream& out, const Engine& engine, const BenchReport& report) {
    const Plan& plan = engine.plan();
    ordered_json json;
    json["device"] = engine.device().name;
    for (const StageReport& stage : report.stages) json["stages"].push_back(json_of(stage));
    json["rates"] = ordered_json::parse(engine.profile(report.rates).json())["rates"];
    json["limits"] = {{"products_flop_per_s", report.limits.device.products},
                      {"memory_bytes_per_s", report.limits.device.memory},
                      {"link_bytes_per_s", report.limits.link}};
    json["budget_bytes"] = plan.budget_bytes;
    json["granule_bytes"] = plan.granule_bytes;
    const auto bytes = engine.bytes();
    for (int i = 0; i < kOwners; ++i)
        json["bytes"][std::string(owner_name(static_cast<Owner>(i)))] = bytes[i];
    json["driver_allocations_after_load"] = engine.driver_allocations_after_load();
    json["free_bytes_before"] = report.free_before;
    json["free_bytes_after"] = report.free_after;
    out << json.dump(2) << "\n";
}

void print_text(std::ostream& out, const Engine& engine, const BenchReport& report) {
    const Plan& plan = engine.plan();
    out << "device        " << engine.device().name << "\n";
    if (report.stages.size() > 1) {
        print_sweep(out, report);
    } else if (!report.stages.empty()) {
        const StageReport& stage = report.stages.front();
        if (stage.stage.prompt_tokens) print_reading(out, stage, report.limits);
        if (stage.stage.decode_tokens) print_answering(out, stage);
        if (!stage.stops.empty()) print_stops(out, stage.stops);
    }
    const Rates& rates = report.rates;
    const auto tflops = [](double rate) { return fixed(rate / 1e12, rate < 1e13 ? 2 : 0); };
    const auto gigabytes = [](double rate) { return fixed(rate / 1e9, rate < 1e11 ? 1 : 0); };
    out << "rates         products " << tflops(rates.products) << " TFLOP/s, attention "
        << tflops(rates.attention) << " TFLOP/s, weights " << gigabytes(rates.weights)
        << " GB/s, unpacked " << gigabytes(rates.unpack) << " GB/s, link " << gigabytes(rates.link)
        << " GB/s, gathered " << gigabytes(rates.gather) << " GB/s, memory "
        << gigabytes(rates.memory) << " GB/s, cells " << gigabytes(rates.cells) << " G/s, layer "
        << fixed(rates.layer * 1e6, 0) << " us\n";
    const Limits& limits = report.limits;
    if (limits.device.products > 0)
        out << "at most       products " << tflops(limits.device.products) << " TFLOP/s ("
            << percent(rates.products / limits.device.products) << " reached), memory "
            << gigabytes(limits.device.memory) << " GB/s ("
            << percent(rates.weights / limits.device.memory) << " by weights), link "
            << gigabytes(limits.link) << " GB/s (" << percent(share_of(rates.link, limits.link))
            << ")\n";
    out << "budget        " << format_bytes(plan.budget_bytes) << " in "
        << plan.budget_bytes / plan.granule_bytes << " granules of "
        << format_bytes(plan.granule_bytes) << "\n";
    const auto bytes = engine.bytes();
    Table table({}, {false, false});
    for (int i = 0; i < kOwners; ++i)
        if (bytes[i])
            table.add({std::string(owner_name(static_cast<Owner>(i))), format_bytes(bytes[i])});
    table.print(out);
    out << "driver allocations after load: " << engine.driver_allocations_after_load();
    if (engine.device().id != "host")
        out << "; it says free: " << grouped(report.free_before) << " bytes before, "
            << grouped(report.free_after) << " after";
    out << "\n";
}

}  // namespace granary::cli

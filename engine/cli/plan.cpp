// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cli/plan.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

#include "engine/cli/table.h"
#include "engine/gguf/printable.h"

namespace granary::cli {
namespace {

using nlohmann::ordered_json;
using Bytes = std::array<uint64_t, kOwners>;

constexpr uint64_t kMostProfile = 64 << 10;

// All that is said of one plan.
struct Preview {
    std::string device, origin;
    bool estimate = false;
    const ModelFacts& model;
    Plan plan;
    uint32_t tokens = 0;  // of the prompt
    PromptTime prompt;
    Bytes at_tokens{};
    double answer_at_tokens = 0;  // tok/s
};

std::string rate_text(double tok_s) {
    return (tok_s < 99.5 ? fixed(tok_s, 1) : grouped(static_cast<uint64_t>(std::lround(tok_s)))) +
           " tok/s";
}

std::string seconds_text(double seconds) {
    if (seconds < 60) return fixed(seconds, seconds < 10 ? 2 : 1) + " s";
    const auto whole = static_cast<uint64_t>(std::lround(seconds));
    if (whole < 3600)
        return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s";
    return grouped(whole / 3600) + " h " + std::to_string(whole % 3600 / 60) + " min";
}

void print_text(std::ostream& out, const Preview& p) {
    const Plan& plan = p.plan;
    const bool cached = plan.rows_at_start > 0;
    out << "model      " << (p.model.name.empty() ? p.model.family : p.model.name) << "\n"
        << "device     " << p.device << (p.estimate ? " (estimated figures)" : "") << "\n";
    if (!p.origin.empty()) out << "           " << p.origin << "\n";
    out << "memory     " << format_bytes(plan.budget_bytes) << " in "
        << grouped(plan.budget_bytes / plan.granule_bytes) << " granules of "
        << format_bytes(plan.granule_bytes) << "\n"
        << "context    " << grouped(plan.max_context) << " tokens of K/V as "
        << gpu::kv_format_name(plan.kv_format) << "\n"
        << "positions  " << plan.rope.text() << "\n";
    const std::string note = context_note(plan.rope, plan.max_context);
    if (!note.empty()) out << "           " << note << "\n";
    out << "reading    in steps of " << grouped(plan.chunk) << " tokens"
        << (plan.chunk_at_max < plan.chunk ? ", of " + grouped(plan.chunk_at_max) + " at the end"
                                           : "");
    if (cached)
        out << (plan.stream_min == UINT32_MAX
                    ? "; experts never all stream"
                    : "; all experts stream from " + grouped(plan.stream_min) + " on");
    out << "\n\nBytes by owner\n";

    const bool between = p.tokens < plan.max_context;
    Table::Row heading{"", "at start", "at " + grouped(p.tokens)};
    if (between) heading.push_back("at " + grouped(plan.max_context));
    Table table(heading, {false, true, true, true});
    for (int i = 0; i < kOwners; ++i) {
        if (!plan.at_start[i] && !p.at_tokens[i] && !plan.at_max[i]) continue;
        Table::Row row{std::string(owner_name(static_cast<Owner>(i))),
                       format_bytes(plan.at_start[i]), format_bytes(p.at_tokens[i])};
        if (between) row.push_back(format_bytes(plan.at_max[i]));
        table.add(row);
    }
    table.print(out);

    out << "\nReading " << grouped(p.tokens) << " tokens\n";
    Table chunks({"from", "step", "loan", "K/V", cached ? "experts of each layer" : "experts",
                  "time", "at its end"},
                 {true, true, true, true, false, true, true});
    for (const ChunksTime& part : p.prompt.stretches) {
        std::string experts = "in place";
        if (cached) {
            experts = std::to_string(part.rows_first);
            if (part.rows_last != part.rows_first)
                experts += " .. " + std::to_string(part.rows_last);
            experts += " of " + std::to_string(p.model.experts);
            experts += part.streamed ? ", others stream" : ", others staged";
        }
        chunks.add({grouped(part.from), grouped(part.chunk), format_bytes(part.loan_bytes),
                    format_bytes(part.kv_bytes), experts, seconds_text(part.seconds),
                    rate_text(part.last_tok_s)});
    }
    chunks.print(out);

    out << "\nPredicted" << (p.estimate ? " from estimated figures" : "") << "\n"
        << "  reading    " << rate_text(p.tokens / p.prompt.seconds) << ", "
        << seconds_text(p.prompt.seconds) << " in all\n"
        << "  answering  " << rate_text(plan.speeds.answering_at_start) << " at the start, "
        << rate_text(p.answer_at_tokens) << " after " << grouped(p.tokens) << " tokens";
    if (between) out << ", " << rate_text(plan.speeds.answering_at_max) << " with a full context";
    out << "\n";
}

ordered_json owners_json(const Bytes& bytes) {
    ordered_json json;
    for (int i = 0; i < kOwners; ++i)
        json[std::string(owner_name(static_cast<Owner>(i)))] = bytes[i];
    return json;
}

void print_json(std::ostream& out, const Preview& p) {
    const Plan& plan = p.plan;
    ordered_json json;
    json["admitted"] = true;
    json["model"] = p.model.name;
    json["device"] = {{"name", p.device}, {"estimate", p.estimate}};
    for (const Settings::Entry& entry : Settings::entries())
        json["settings"][std::string(entry.name)] = plan.settings.get(entry.name);
    json["max_context"] = plan.max_context;
    json["rope"] = {{"scaling", rope_kind_name(plan.rope.kind)},
                    {"factor", plan.rope.factor},
                    {"original_context", plan.rope.original}};
    json["kv"] = gpu::kv_format_name(plan.kv_format);
    json["prefill"] = plan.chunk;
    json["prefill_at_max"] = plan.chunk_at_max;
    json["prefill_stream_min"] =
        plan.stream_min == UINT32_MAX ? ordered_json() : ordered_json(plan.stream_min);
    json["budget_bytes"] = plan.budget_bytes;
    json["granule_bytes"] = plan.granule_bytes;
    json["bytes_at_start"] = owners_json(plan.at_start);
    json["bytes_at_tokens"] = owners_json(p.at_tokens);
    json["bytes_at_max"] = owners_json(plan.at_max);
    json["experts"] = {{"of_each_layer", p.model.experts},
                       {"rows_at_start", plan.rows_at_start},
                       {"rows_at_max", plan.rows_at_max}};
    ordered_json schedule = ordered_json::array();
    for (const ChunksTime& part : p.prompt.stretches)
        schedule.push_back({{"from", part.from},
                            {"to", part.to},
                            {"chunk", part.chunk},
                            {"loan_bytes", part.loan_bytes},
                            {"kv_bytes", part.kv_bytes},
                            {"expert_rows_first", part.rows_first},
                            {"expert_rows_last", part.rows_last},
                            {"streamed", part.streamed},
                            {"seconds", part.seconds},
                            {"tok_s_at_end", part.last_tok_s}});
    json["prompt"] = {{"tokens", p.tokens},
                      {"seconds", p.prompt.seconds},
                      {"tok_s", p.tokens / p.prompt.seconds},
                      {"tok_s_at_end", p.prompt.stretches.back().last_tok_s},
                      {"schedule", schedule}};
    json["answer"] = {{"tok_s_at_start", plan.speeds.answering_at_start},
                      {"tok_s_at_tokens", p.answer_at_tokens},
                      {"tok_s_at_max", plan.speeds.answering_at_max}};
    out << json.dump(2, ' ', false, ordered_json::error_handler_t::replace) << "\n";
}

int refuse(const Error& error, const WaysOut& ways, bool json, std::ostream& out,
           std::ostream& err) {
    if (json) {
        ordered_json refusal;
        refusal["admitted"] = false;
        refusal["what"] = error.what;
        refusal["detail"] = error.detail;
        refusal["advice"] = error.advice;
        refusal["nearest"] = ordered_json::object();
        if (ways.memory) refusal["nearest"]["memory_bytes"] = ways.memory;
        if (ways.max_context) refusal["nearest"]["max_context"] = ways.max_context;
        if (ways.prefill) refusal["nearest"]["prefill"] = ways.prefill;
        out << refusal.dump(2, ' ', false, ordered_json::error_handler_t::replace) << "\n";
    }
    return report_error(error, err);
}

}  // namespace

Result<DeviceProfile> read_device_profile(const std::string& path) {
    auto text = read_file(path, kMostProfile);
    if (!text) return tl::unexpected(text.error());
    auto profile = DeviceProfile::parse(*text);
    if (!profile) {
        Error error = profile.error();
        error.detail = gguf::quoted(path) + ": " + error.detail;
        return tl::unexpected(error);
    }
    return profile;
}

int plan(const PlanOptions& options, std::ostream& out, std::ostream& err) {
    std::optional<DeviceProfile> profile;
    Settings settings = options.settings;
    if (options.device_profile) {
        auto read = read_device_profile(*options.device_profile);
        if (!read) return report_error(read.error(), err);
        profile = std::move(*read);
    }
    auto planner = make_planner(options.model, settings, profile ? &*profile : nullptr);
    if (!planner) return report_error(planner.error(), err);
    auto planned = planner->plan(settings);
    if (!planned)
        return refuse(planned.error(), planner->ways_out(settings), options.json, out, err);

    const uint32_t tokens = options.prompt_tokens.value_or(planned->max_context);
    if (tokens == 0 || tokens > planned->max_context)
        return report_error(
            {ErrorKind::refused, "a prompt of " + std::to_string(tokens) + " tokens does not fit",
             "max-context is " + std::to_string(planned->max_context),
             "Choose 1 to " + std::to_string(planned->max_context) + " tokens"},
            err);
    auto schedule = planner->schedule(*planned, {}, 0, tokens);
    if (!schedule) return refuse(schedule.error(), {}, options.json, out, err);

    Preview preview{
        profile ? profile->name
        : planner->device().host
            ? "this machine's processor, " + std::to_string(planner->device().threads) + " threads"
            : "this machine's GPU",
        profile ? profile->origin : "",
        !profile || profile->estimate,
        planner->model(),
        *planned,
        tokens,
        planner->predict_prompt(*planned, *schedule, tokens),
        planner->bytes_at(*planned, tokens, schedule->back().chunk),
        1 / planner->predict_decode(*planned, tokens)};
    options.json ? print_json(out, preview) : print_text(out, preview);
    return kOk;
}

}  // namespace granary::cli

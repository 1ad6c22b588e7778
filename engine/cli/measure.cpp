// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cli/measure.h"

#include <algorithm>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <ostream>

#include "engine/cli/common.h"

namespace granary::cli {
namespace {

constexpr uint64_t kMostTokensFile = 64ull << 20;

Result<std::vector<TokenId>> parse_tokens(const std::string& path) {
    auto text = read_file(path, kMostTokensFile);
    if (!text) return tl::unexpected(text.error());
    const nlohmann::json json = nlohmann::json::parse(*text, nullptr, false);
    const nlohmann::json* list = &json;
    if (json.is_object() && json.contains("tokens")) list = &json["tokens"];
    if (!list->is_array())
        return fail(ErrorKind::invalid_file, path + " holds no tokens", "",
                    "It must be a JSON list of ids, or an object with \"tokens\"");
    std::vector<TokenId> tokens;
    for (const nlohmann::json& id : *list) {
        if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX)
            return fail(ErrorKind::invalid_file, path + " has an entry that is no token id",
                        "entry " + std::to_string(tokens.size()));
        tokens.push_back(id.get<TokenId>());
    }
    return tokens;
}

}  // namespace

int logits(const LogitsOptions& options, std::ostream& err) {
    auto tokens = parse_tokens(options.tokens_file);
    if (!tokens) return report_error(tokens.error(), err);
    if (auto r = check_writable(options.out_file); !r) return report_error(r.error(), err);
    EngineOptions engine_options;
    engine_options.settings = options.settings;
    engine_options.arithmetic = options.arithmetic;
    auto engine = Engine::open(options.model, engine_options);
    if (!engine) return report_error(engine.error(), err);
    auto result = (*engine)->logits({*tokens, options.positions, options.greedy});
    if (!result) return report_error(result.error(), err);

    nlohmann::ordered_json json;
    json["vocab"] = (*engine)->model().vocab;
    json["tokens"] = *tokens;
    json["argmax"] = result->argmax;
    json["logits"] = nlohmann::ordered_json::object();
    for (size_t i = 0; i < options.positions.size(); ++i)
        json["logits"][std::to_string(options.positions[i])] = result->logits[i];
    if (options.greedy) json["greedy"] = result->greedy;
    auto written = write_file_atomically(options.out_file, json.dump() + "\n");
    return written ? kOk : report_error(written.error(), err);
}

int bench(const BenchOptions& options, std::ostream& out, std::ostream& err) {
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
    for (uint32_t i = 0; i < std::max(options.repeat, 1u); ++i) {
        auto result = (*engine)->bench(options.prompt_tokens, options.decode_tokens);
        if (!result) return report_error(result.error(), err);
        prefill.push_back(result->prefill_tok_s);
        decode.push_back(result->decode_tok_s);
    }
    const auto median = [](std::vector<double> values) {
        std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
        return values[values.size() / 2];
    };
    const Plan& plan = (*engine)->plan();
    const auto bytes = (*engine)->bytes();
    if (options.json) {
        nlohmann::ordered_json json;
        json["prefill_tok_s"] = median(prefill);
        json["decode_tok_s"] = median(decode);
        json["budget_bytes"] = plan.budget_bytes;
        json["granule_bytes"] = plan.granule_bytes;
        for (int i = 0; i < kOwners; ++i)
            json["bytes"][std::string(owner_name(static_cast<Owner>(i)))] = bytes[i];
        json["driver_allocations_after_load"] = (*engine)->driver_allocations_after_load();
        out << json.dump(2) << "\n";
        return kOk;
    }
    out << std::fixed << std::setprecision(0);
    out << "device        " << (*engine)->device().name << "\n";
    out << "reading       " << median(prefill) << " tok/s (" << options.prompt_tokens
        << " tokens, steps of " << plan.chunk << ")\n";
    out << "answering     " << median(decode) << " tok/s (" << options.decode_tokens
        << " tokens)\n";
    out << "budget        " << format_bytes(plan.budget_bytes) << " in "
        << plan.budget_bytes / plan.granule_bytes << " granules of "
        << format_bytes(plan.granule_bytes) << "\n";
    for (int i = 0; i < kOwners; ++i)
        if (bytes[i])
            out << "  " << std::left << std::setw(12) << owner_name(static_cast<Owner>(i))
                << format_bytes(bytes[i]) << "\n";
    out << "driver allocations after load: " << (*engine)->driver_allocations_after_load() << "\n";
    return kOk;
}

}  // namespace granary::cli

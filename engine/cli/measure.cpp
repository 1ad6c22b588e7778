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

}  // namespace granary::cli

// SPDX-License-Identifier: GPL-3.0-or-later
// Numbers of another engine for a model: tokens, argmax, logits at positions, greedy tokens.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "granary/engine.h"
#include "tests/host_settings.h"
#include "tests/unpacked.h"

namespace granary::test {

struct Fixture {
    std::vector<TokenId> tokens, argmax, greedy;
    std::vector<uint32_t> positions;
    std::vector<std::vector<float>> logits;
};

inline Fixture read_fixture(const std::string& path) {
    const nlohmann::json json = nlohmann::json::parse(unpacked(path));
    Fixture fixture;
    fixture.tokens = json["tokens"].get<std::vector<TokenId>>();
    fixture.argmax = json["argmax"].get<std::vector<TokenId>>();
    if (json.contains("greedy")) fixture.greedy = json["greedy"].get<std::vector<TokenId>>();
    for (const auto& [position, values] : json["logits"].items()) {
        fixture.positions.push_back(static_cast<uint32_t>(std::stoul(position)));
        fixture.logits.push_back(values.get<std::vector<float>>());
    }
    return fixture;
}

// |a - b| / |b|
inline double relative_l2(const std::vector<float>& a, const std::vector<float>& b) {
    EXPECT_EQ(a.size(), b.size());
    double difference = 0, norm = 0;
    for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
        difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
        norm += double{b[i]} * b[i];
    }
    return std::sqrt(difference / norm);
}

inline size_t equal_count(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
    size_t equal = 0;
    for (size_t i = 0; i < a.size() && i < b.size(); ++i) equal += a[i] == b[i];
    return equal;
}

inline Result<LogitsResult> compute(const std::string& model, const Fixture& fixture,
                                    gpu::Arithmetic arithmetic, const Settings& settings = host_settings()) {
    EngineOptions options;
    options.arithmetic = arithmetic;
    options.settings = settings;
    auto engine = Engine::open(model, options);
    if (!engine) return tl::unexpected(engine.error());
    return (*engine)->logits(
        {fixture.tokens, fixture.positions, static_cast<uint32_t>(fixture.greedy.size())});
}

inline const std::string kStarter = GRANARY_RESOURCES "/starter/starter-q4_k_m.gguf";

}  // namespace granary::test

// SPDX-License-Identifier: GPL-3.0-or-later
// granary-cli bench: the times of tokens and what the worst one is put down to; the profile that it
// writes.
#include "engine/cli/bench.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/cli/plan.h"
#include "tests/gguf/gguf_builder.h"

namespace granary::test {
namespace {

using namespace cli;

const std::string kStarter = GRANARY_RESOURCES "/starter/starter-q4_k_m.gguf";

TEST(TokenTimes, ArePercentilesAndTheWorstHasACause) {
    std::vector<TokenTime> tokens;
    for (uint32_t i = 0; i < 200; ++i) tokens.push_back({1e-3 + i * 1e-6, i, 0, 0});
    tokens[7].seconds = 9e-3;
    TokenTimes times = token_times(tokens, 1e9);
    EXPECT_NEAR(times.median, 1.1e-3, 2e-6);
    EXPECT_NEAR(times.p99, 1.198e-3, 2e-6);  // one of 200 is slower than this, and the worst
    EXPECT_EQ(times.most, 9e-3);
    EXPECT_EQ(times.worst.cell, 7u);
    EXPECT_EQ(times.cause, "no cause in the engine: the machine");

    tokens[7].bytes_copied = 1 << 20;  // 1 ms of the 8 above the median
    EXPECT_EQ(token_times(tokens, 1e9).cause, "no cause in the engine: the machine");
    tokens[7].bytes_copied = 6 << 20;
    EXPECT_EQ(token_times(tokens, 1e9).cause, "missed experts, 6 MiB copied");
    tokens[7].kv_granules = 1;
    EXPECT_EQ(token_times(tokens, 1e9).cause,
              "K/V grew by 1 granule, missed experts, 6 MiB copied");
    EXPECT_EQ(token_times({}, 1e9).most, 0);
}

TEST(Bench, SaysWhatMemoryDidAndWritesAProfile) {
    TempDir folder;
    BenchOptions options;
    options.model = kStarter;
    options.prompt_tokens = 1500;
    options.decode_tokens = 40;
    options.json = true;
    options.device_profile = folder.file("here.json");
    options.settings.vram_budget = 36 << 20;
    options.settings.threads = 2;
    std::ostringstream out, err;
    ASSERT_EQ(bench(options, out, err), kOk) << err.str();
    const auto json = nlohmann::json::parse(out.str());
    for (const char* key :
         {"prefill_tok_s", "decode_tok_s", "predicted_prefill_tok_s", "predicted_decode_tok_s"})
        EXPECT_GT(json[key].get<double>(), 0) << key;
    EXPECT_EQ(json["schedule"].front()["from"], 0);
    EXPECT_GT(json["kv_granules_moved"], 0);
    EXPECT_LE(json["token_seconds"]["p50"], json["token_seconds"]["p99"]);
    EXPECT_LE(json["token_seconds"]["p99"], json["token_seconds"]["max"]);
    EXPECT_FALSE(json["token_seconds"]["worst_cause"].get<std::string>().empty());
    EXPECT_EQ(json["driver_allocations_after_load"], 0);
    for (const auto& [key, rate] : json["rates"].items()) EXPECT_GT(rate.get<double>(), 0) << key;

    const auto profile = read_device_profile(*options.device_profile);
    ASSERT_TRUE(profile) << profile.error().message();
    EXPECT_FALSE(profile->estimate);
    EXPECT_EQ(profile->device, "host");
    EXPECT_EQ(profile->threads, 2u);
    EXPECT_EQ(profile->rates.products, json["rates"]["products_flop_per_s"].get<double>());
    options.device_profile = folder.file("no/such/folder.json");
    EXPECT_EQ(bench(options, out, err), kBadInput);
}

}  // namespace
}  // namespace granary::test

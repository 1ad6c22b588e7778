// SPDX-License-Identifier: GPL-3.0-or-later
// granary-cli bench: the times of tokens and what the worst one is put down to; the profile that it
// writes.
#include "engine/cli/bench.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/cli/bench_report.h"
#include "engine/cli/common.h"
#include "engine/cli/plan.h"
#include "engine/cli/suite.h"
#include "engine/cli/trace_recorder.h"
#include "granary/trace.h"
#include "tests/gguf/gguf_builder.h"
#include "tests/host_settings.h"
#include "tests/unpacked.h"

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
    options.settings = test::host_settings();
    options.settings.vram_budget = 36 << 20;
    options.settings.threads = 2;
    std::ostringstream out, err;
    ASSERT_EQ(bench(options, out, err), kOk) << err.str();
    const auto json = nlohmann::json::parse(out.str());
    ASSERT_EQ(json["stages"].size(), 1u);
    const auto& stage = json["stages"][0];
    for (const char* key :
         {"prefill_tok_s", "decode_tok_s", "predicted_prefill_tok_s", "predicted_decode_tok_s"})
        EXPECT_GT(stage[key].get<double>(), 0) << key;
    EXPECT_EQ(stage["schedule"].front()["from"], 0);
    EXPECT_GT(stage["kv_granules_moved"], 0);
    EXPECT_LE(stage["token_seconds"]["p50"], stage["token_seconds"]["p99"]);
    EXPECT_LE(stage["token_seconds"]["p99"], stage["token_seconds"]["max"]);
    EXPECT_FALSE(stage["token_seconds"]["worst_cause"].get<std::string>().empty());
    // The phases are all of the reading but its memory and its last step's logits.
    double phases = 0;
    for (const char* phase : {"dense", "attention", "experts", "waiting", "memory"})
        phases += stage["prefill_seconds"][phase].get<double>();
    const double all = stage["prefill_seconds"]["all"].get<double>();
    // On a busy machine other programs may take their time out of the rest.
    EXPECT_GT(phases, 0.5 * all);
    EXPECT_LE(phases, all);
    EXPECT_GT(stage["bytes_streamed"], 0);
    EXPECT_GT(stage["hit_share"], 0);
    EXPECT_LE(stage["hit_share"], 1);
    EXPECT_GT(json["limits"]["link_bytes_per_s"], 0);
    EXPECT_EQ(json["driver_allocations_after_load"], 0);
    for (const auto& [key, rate] : json["rates"].items()) {
        EXPECT_TRUE(std::isfinite(rate.get<double>())) << key;
        // A rest, of which other programs may leave nothing.
        if (key == "layer_s")
            EXPECT_GE(rate.get<double>(), 0);
        else
            EXPECT_GT(rate.get<double>(), 0) << key;
    }

    const auto profile = read_device_profile(*options.device_profile);
    ASSERT_TRUE(profile) << profile.error().message();
    EXPECT_FALSE(profile->estimate);
    EXPECT_EQ(profile->device, "host");
    EXPECT_EQ(profile->threads, 2u);
    EXPECT_EQ(profile->rates.products, json["rates"]["products_flop_per_s"].get<double>());
    options.device_profile = folder.file("no/such/folder.json");
    EXPECT_EQ(bench(options, out, err), kBadInput);
}

TEST(Bench, SweepsOverDepthsInOneConversation) {
    BenchOptions options;
    options.model = kStarter;
    options.decode_tokens = 8;
    options.sweep = {300, 900, 900};
    options.json = true;
    options.settings.vram_budget = 36 << 20;
    std::ostringstream out, err;
    ASSERT_EQ(bench(options, out, err), kOk) << err.str();
    const auto stages = nlohmann::json::parse(out.str())["stages"];
    ASSERT_EQ(stages.size(), 3u);
    EXPECT_EQ(stages[0]["depth"], 0);
    EXPECT_EQ(stages[1]["depth"], 308);
    EXPECT_EQ(stages[1]["prompt_tokens"], 592);
    EXPECT_EQ(stages[2]["prompt_tokens"], 0);  // it is that deep already
    EXPECT_EQ(stages[2]["prefill_tok_s"], 0);
    EXPECT_GT(stages[2]["decode_tok_s"], 0);
}

// Answering needs a cell to look at: where nothing is read first, there is room for it.
TEST(Bench, AnswersWithNothingInFront) {
    for (const bool sweep : {false, true}) {
        BenchOptions options;
        options.model = kStarter;
        options.prompt_tokens = 0;
        options.decode_tokens = sweep ? 8 : 600;
        if (sweep) options.sweep = {0, 700};
        options.json = true;
        options.settings.device = "host";
        std::ostringstream out, err;
        ASSERT_EQ(bench(options, out, err), kOk) << err.str();
        const auto stages = nlohmann::json::parse(out.str())["stages"];
        EXPECT_EQ(stages.size(), sweep ? 2u : 1u);
        EXPECT_GT(stages[0]["decode_tok_s"], 0);
    }
}

TEST(Bench, MeasuresBehindADepth) {
    BenchOptions options;
    options.model = kStarter;
    options.depth = 1000;
    options.prompt_tokens = 64;
    options.decode_tokens = 4;
    options.repeat = 2;
    std::ostringstream out, err;
    ASSERT_EQ(bench(options, out, err), kOk) << err.str();
    EXPECT_NE(out.str().find("(64 tokens from 1,000; predicted "), std::string::npos) << out.str();
    EXPECT_NE(out.str().find("4 tokens from 1,064"), std::string::npos) << out.str();
}

TEST(Bench, TellsHowLongAStopTakes) {
    BenchOptions options;
    options.model = kStarter;
    options.prompt_tokens = 1500;
    options.decode_tokens = 0;
    options.stops = 3;
    options.json = true;
    std::ostringstream out, err;
    ASSERT_EQ(bench(options, out, err), kOk) << err.str();
    const auto json = nlohmann::json::parse(out.str());
    const auto& stage = json["stages"][0];
    const auto& stops = stage["stops"];
    // One that comes late on a busy machine may find nothing left to stop.
    ASSERT_GE(stops.size(), 1u) << out.str();
    for (size_t i = 0; i < stops.size(); ++i) {
        const double seconds = stops[i]["seconds"];
        EXPECT_GE(seconds, i > 0 ? stops[i - 1]["seconds"].get<double>() : 0);
        EXPECT_LT(seconds, 1500 / stage["prefill_tok_s"].get<double>() + 1);
        EXPECT_GE(stops[i]["depth"], 1500);
    }
    options.json = false;
    options.prompt_tokens = 600;
    std::ostringstream text;
    ASSERT_EQ(bench(options, text, err), kOk) << err.str();
    EXPECT_NE(text.str().find("in the midst of reading on from 600"), std::string::npos)
        << text.str();
    options.prompt_tokens = 0;
    EXPECT_NE(bench(options, text, err), kOk);
    EXPECT_NE(err.str().find("nothing to stop"), std::string::npos) << err.str();
}

// What a delta net remembers is lost with what was being read, unless it was kept: each Stop is of
// reading on, not of reading from the beginning.
TEST(Bench, EachStopIsAtTheDepth) {
    TempDir folder;
    BenchOptions options;
    options.model = folder.file("model.gguf");
    write_file(options.model,
               unpacked_planes(GRANARY_TEST_DATA "/micro/micro-qwen35moe.gguf.planes.gz"));
    options.depth = 3000;
    options.prompt_tokens = 1500;
    options.decode_tokens = 0;
    options.stops = 8;
    options.repeat = 1;
    options.json = true;
    options.settings.device = "host";
    std::ostringstream out, err;
    ASSERT_EQ(bench(options, out, err), kOk) << err.str();
    const auto json = nlohmann::json::parse(out.str());
    const auto& stops = json["stages"][0]["stops"];
    ASSERT_GE(stops.size(), 2u) << out.str();
    for (const auto& stop : stops) EXPECT_GE(stop["depth"], 4500);
}

TEST(Bench, RecordsWhatTheMapShows) {
    TempDir folder;
    BenchOptions options;
    options.model = kStarter;
    options.prompt_tokens = 6000;  // so that a frame falls into the reading on a fast machine too
    options.decode_tokens = 8;
    options.trace = folder.file("run.trace");
    options.settings.device = "host";
    options.settings.threads = 1;
    options.settings.vram_budget = 44 << 20;
    std::ostringstream out, err;
    ASSERT_EQ(bench(options, out, err), kOk) << err.str();
    const auto bytes = read_file(*options.trace, 1 << 20);
    ASSERT_TRUE(bytes);
    auto reader = TraceReader::open(*bytes);
    ASSERT_TRUE(reader) << reader.error().message();
    EXPECT_EQ(reader->header().granules, (44u << 20) / reader->header().granule_bytes);
    ASSERT_GE(reader->frames(), 2u);
    MapFrame frame;
    TraceCounts counts;
    uint32_t most_kv = 0, most_lent = 0;
    for (auto more = reader->next(frame, counts); more && *more;
         more = reader->next(frame, counts)) {
        uint32_t sum = 0;
        for (const uint32_t granules : frame.granules) sum += granules;
        EXPECT_EQ(sum, reader->header().granules);
        most_kv = std::max(most_kv, frame.granules[static_cast<int>(Owner::kv)]);
        most_lent = std::max(most_lent, frame.granules[static_cast<int>(Owner::loan)]);
        EXPECT_EQ(counts.driver_allocations, 0u);
    }
    EXPECT_GT(most_kv, 0u);
    EXPECT_GT(most_lent, 0u);
}

TEST(TraceRecorder, TakesThePoolAsItIsBehindALoweredBudget) {
    TempDir folder;
    EngineOptions options;
    options.settings.device = "host";
    options.settings.vram_budget = 40 << 20;
    options.settings.max_context = 1024;
    auto engine = Engine::open(kStarter, options);
    ASSERT_TRUE(engine) << engine.error().message();
    Settings lower = options.settings;
    lower.vram_budget = 38 << 20;
    const auto laid_anew = (*engine)->apply(lower);
    ASSERT_TRUE(laid_anew) << laid_anew.error().message();
    ASSERT_FALSE(*laid_anew);
    TraceRecorder recorder(**engine);
    const auto written = recorder.write(folder.file("run.trace"));
    ASSERT_TRUE(written) << written.error().message();
    const auto bytes = read_file(folder.file("run.trace"), 1 << 20);
    ASSERT_TRUE(bytes);
    auto reader = TraceReader::open(*bytes);
    ASSERT_TRUE(reader) << reader.error().message();
    MapFrame frame;
    TraceCounts counts;
    const auto next = reader->next(frame, counts);
    ASSERT_TRUE(next && *next);
    uint64_t sum = 0;
    for (const uint32_t granules : frame.granules) sum += granules;
    EXPECT_EQ(sum * frame.granule_bytes, (*engine)->plan().budget_bytes);
}

TEST(LongContextSuite, ForetellsEveryCell) {
    std::ostringstream out, err;
    Settings host;
    host.device = "host";
    ASSERT_EQ(long_context_suite({kStarter, {0}, true, {}, host}, out, err), kOk) << err.str();
    const auto rows = nlohmann::json::parse(out.str());
    ASSERT_EQ(rows.size(), 51u);  // 3 lengths, 4 formats, 4 budgets; 3 smallest ones
    int smallest = 0;
    for (const auto& row : rows) {
        EXPECT_GT(row["predicted_prefill_tok_s"].get<double>(), 0) << row;
        EXPECT_FALSE(row.contains("measured"));
        smallest += row["smallest"].get<bool>();
    }
    EXPECT_EQ(smallest, 3);
    // A granule less than the smallest is refused.
    Settings settings = host;
    settings.max_context = 524288;
    settings.prefill = {AutoCount::Kind::number, 6144};
    settings.kv = gpu::KvFormat::k8v4;
    settings.vram_budget = rows[2]["budget_bytes"];
    const auto planner = make_planner(kStarter, settings);
    ASSERT_TRUE(planner);
    EXPECT_TRUE(planner->plan(settings));
    settings.vram_budget -= 2 << 20;
    EXPECT_FALSE(planner->plan(settings));
}

}  // namespace
}  // namespace granary::test

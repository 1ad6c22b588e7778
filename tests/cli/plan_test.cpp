// SPDX-License-Identifier: GPL-3.0-or-later
// granary-cli plan: what it says is what the planner says, for this machine and for others.
#include "engine/cli/plan.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/gguf/gguf_builder.h"

namespace granary::test {
namespace {

using namespace cli;

const std::string kStarter = GRANARY_RESOURCES "/starter/starter-q4_k_m.gguf";
const std::string kCard = GRANARY_RESOURCES "/devices/nvidia-rtx-3080-ti-laptop-16gb.json";

struct Ran {
    int code = -1;
    std::string out, err;
    nlohmann::json json() const { return nlohmann::json::parse(out); }
};

Ran run(const PlanOptions& options) {
    std::ostringstream out, err;
    const int code = plan(options, out, err);
    return {code, out.str(), err.str()};
}

PlanOptions options_of(std::initializer_list<std::pair<const char*, const char*>> values) {
    PlanOptions options;
    options.model = kStarter;
    options.json = true;
    options.settings.device = "host";
    for (const auto& [name, value] : values) {
        auto set = options.settings.set(name, value);
        EXPECT_TRUE(set) << set.error().message();
    }
    return options;
}

TEST(Plan, SaysWhatThePlannerSays) {
    PlanOptions options =
        options_of({{"vram-budget", "60MiB"}, {"max-context", "8192"}, {"threads", "2"}});
    options.prompt_tokens = 3000;
    const Ran ran = run(options);
    ASSERT_EQ(ran.code, kOk) << ran.err;
    const auto json = ran.json();
    auto planner = make_planner(kStarter, options.settings);
    ASSERT_TRUE(planner);
    const auto plan = planner->plan(options.settings);
    ASSERT_TRUE(plan);
    EXPECT_EQ(json["admitted"], true);
    EXPECT_EQ(json["budget_bytes"], plan->budget_bytes);
    EXPECT_EQ(json["prefill"], plan->chunk);
    EXPECT_EQ(json["kv"], "f16");
    EXPECT_EQ(json["settings"]["max-context"], "8192");
    for (const char* when : {"bytes_at_start", "bytes_at_tokens", "bytes_at_max"}) {
        uint64_t sum = 0;
        for (const auto& [owner, bytes] : json[when].items()) sum += bytes.get<uint64_t>();
        EXPECT_EQ(sum, plan->budget_bytes) << when;
    }
    EXPECT_EQ(json["bytes_at_max"]["kv"], plan->at_max[static_cast<int>(Owner::kv)]);
    EXPECT_LT(json["bytes_at_tokens"]["kv"], json["bytes_at_max"]["kv"]);
    const auto& schedule = json["prompt"]["schedule"];
    ASSERT_FALSE(schedule.empty());
    EXPECT_EQ(schedule.front()["from"], 0);
    EXPECT_EQ(schedule.back()["to"], 3000);
    double seconds = 0;
    for (const auto& part : schedule) seconds += part["seconds"].get<double>();
    EXPECT_NEAR(json["prompt"]["seconds"].get<double>() / seconds, 1, 0.02);
    EXPECT_NEAR(json["prompt"]["tok_s"].get<double>() * json["prompt"]["seconds"].get<double>(),
                3000, 1);
    EXPECT_GE(json["answer"]["tok_s_at_start"], json["answer"]["tok_s_at_tokens"]);
}

TEST(Plan, IsATableForPeople) {
    PlanOptions options = options_of({{"vram-budget", "60MiB"}, {"max-context", "8192"}});
    options.json = false;
    options.prompt_tokens = 5000;
    const Ran ran = run(options);
    ASSERT_EQ(ran.code, kOk) << ran.err;
    for (const char* part : {"Starter", "Bytes by owner", "at 5,000", "at 8,192", "workspace",
                             "Reading 5,000 tokens", "Predicted", "answering"})
        EXPECT_NE(ran.out.find(part), std::string::npos) << part << " in:\n" << ran.out;
}

TEST(Plan, RefusesWithTheNearestThatFits) {
    PlanOptions options = options_of({{"vram-budget", "40MiB"}, {"max-context", "100000"}});
    const Ran refused = run(options);
    EXPECT_EQ(refused.code, kRefused);
    EXPECT_NE(refused.err.find("is too small"), std::string::npos) << refused.err;
    const auto json = refused.json();
    EXPECT_EQ(json["admitted"], false);
    EXPECT_NE(json["detail"].get<std::string>().find("K/V"), std::string::npos);

    PlanOptions shorter = options, larger = options;
    shorter.settings.max_context = json["nearest"]["max_context"];
    EXPECT_EQ(run(shorter).code, kOk);
    larger.settings.vram_budget = json["nearest"]["memory_bytes"];
    EXPECT_EQ(run(larger).code, kOk);
    larger.settings.vram_budget -= 1;
    EXPECT_EQ(run(larger).code, kRefused);

    PlanOptions step = options_of({{"vram-budget", "45MiB"}, {"prefill", "8192"}});
    const Ran too_large = run(step);
    EXPECT_EQ(too_large.code, kRefused);
    step.settings.prefill.number = too_large.json()["nearest"]["prefill"];
    EXPECT_EQ(run(step).code, kOk);

    options = options_of({{"max-context", "4096"}});
    options.prompt_tokens = 5000;
    EXPECT_EQ(run(options).code, kRefused);
}

TEST(Plan, ForACardThatIsNotHere) {
    PlanOptions options = options_of({{"max-context", "4096"}, {"kv", "k8v4"}});
    options.device_profile = kCard;
    const auto json = run(options).json();
    EXPECT_EQ(json["device"]["estimate"], true);
    EXPECT_EQ(json["granule_bytes"], 2 << 20);
    EXPECT_EQ(json["kv"], "k8v4");
    // Without a budget: all that the model can use of what is free.
    EXPECT_EQ(json["experts"]["rows_at_max"], json["experts"]["of_each_layer"]);
}

TEST(Plan, AFileThatIsNoProfileIsRefused) {
    TempDir folder;
    PlanOptions options = options_of({});
    for (const std::string& text :
         {std::string("{"), std::string("{\"granary_device_profile\": 99}"),
          std::string(100000, ' '), std::string(50000, '['), std::string("\xff\xfe")}) {
        write_file(folder.file("p.json"), text);
        options.device_profile = folder.file("p.json");
        const Ran ran = run(options);
        EXPECT_EQ(ran.code, kBadInput);
        EXPECT_NE(ran.err.find("p.json"), std::string::npos) << ran.err;
    }
    options.device_profile = folder.file("missing.json");
    EXPECT_EQ(run(options).code, kBadInput);
}

}  // namespace
}  // namespace granary::test

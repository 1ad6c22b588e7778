// SPDX-License-Identifier: GPL-3.0-or-later
// K/V, loan and experts trade granules while a prompt runs and between prompts: the answers stay
// the same, and the driver is not asked for anything.
#include <algorithm>
#include <random>

#include "tests/engine/fixture.h"
#include "tests/host_settings.h"

namespace granary::test {
namespace {

std::vector<TokenId> some_tokens(size_t count, uint32_t vocab) {
    std::mt19937 random(11);
    std::vector<TokenId> tokens(count);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % vocab);
    return tokens;
}

struct Logged {
    std::unique_ptr<Engine> engine;
    std::vector<std::string> lines;
    size_t count(const std::string& what) const {
        return static_cast<size_t>(std::count_if(
            lines.begin(), lines.end(),
            [&](const std::string& line) { return line.find(what) != std::string::npos; }));
    }
};

std::unique_ptr<Logged> open(const std::string& path, const Settings& settings) {
    auto logged = std::make_unique<Logged>();
    EngineOptions options;
    options.settings = settings;
    options.log = [lines = &logged->lines](LogLevel, std::string_view line) {
        lines->emplace_back(line);
    };
    auto engine = Engine::open(path, options);
    EXPECT_TRUE(engine) << engine.error().message();
    if (engine) logged->engine = std::move(*engine);
    return logged;
}

// The smallest budget that is admitted, from the refusal's own advice.
uint64_t smallest_budget(const std::string& path, Settings settings) {
    settings.vram_budget = 1 << 20;
    for (int tries = 0; tries < 100; ++tries) {
        EngineOptions options;
        options.settings = settings;
        auto engine = Engine::open(path, options);
        if (engine) return settings.vram_budget;
        settings.vram_budget += 1 << 20;
    }
    ADD_FAILURE() << "no budget is admitted";
    return 0;
}

TEST(Elastic, TheLoanShrinksInsideAPromptAndTheTokensStayTheSame) {
    Settings settings = host_settings();
    settings.max_context = 6144;
    settings.threads = 2;
    settings.prefill = {AutoCount::Kind::number, 1024};
    settings.vram_budget = 1ull << 30;
    const LogitsRequest request{some_tokens(6000, 1000), {2999, 5999}, 64};
    auto roomy = open(kStarter, settings);
    const auto expected = roomy->engine->logits(request);
    ASSERT_TRUE(expected) << expected.error().message();
    EXPECT_EQ(roomy->count("loan shrunk"), 0u);

    settings.vram_budget = 0;
    Settings least = settings;
    least.prefill = {AutoCount::Kind::number, 64};
    settings.vram_budget = smallest_budget(kStarter, least);
    settings.prefill = {};
    auto tight = open(kStarter, settings);
    const auto& plan = tight->engine->plan();
    EXPECT_LT(plan.chunk_at_max, plan.chunk);
    const auto found = tight->engine->logits(request);
    ASSERT_TRUE(found) << found.error().message();
    EXPECT_EQ(found->logits, expected->logits);
    EXPECT_EQ(found->argmax, expected->argmax);
    EXPECT_EQ(found->greedy, expected->greedy);
    EXPECT_GE(tight->count("loan shrunk from"), 1u);
    EXPECT_EQ(tight->count("ASKED"), 0u);
    EXPECT_EQ(tight->engine->driver_allocations_after_load(), 0u);
}

TEST(Elastic, PlantedFactsAreFoundWhereTheLoanShrinks) {
    std::ifstream stream(GRANARY_RESOURCES "/welcome/questions.json");
    const nlohmann::json json = nlohmann::json::parse(stream);
    std::ifstream text(std::string(GRANARY_RESOURCES "/welcome/") +
                       json["document"].get<std::string>());
    const std::string document{std::istreambuf_iterator<char>(text), {}};
    Settings settings = host_settings();
    settings.max_context = 1536;
    settings.threads = 2;
    const auto found_with = [&](uint64_t budget, bool shrinks) {
        settings.vram_budget = budget;
        auto logged = open(kStarter, settings);
        size_t found = 0;
        for (const auto& question : json["questions"]) {
            Request request;
            request.messages = {
                {"user", document + "\n\n" + question["question"].get<std::string>()}};
            request.max_tokens = 48;
            std::string answer;
            Listener listener;
            listener.on_text = [&](std::string_view piece) { answer += piece; };
            const StopSignal stop;
            const ConversationId id = *logged->engine->create_conversation();
            auto report = logged->engine->answer(id, request, listener, stop);
            EXPECT_TRUE(report) << report.error().message();
            found += answer.find(question["fact"].get<std::string>()) != std::string::npos;
            logged->engine->drop_conversation(id);
        }
        EXPECT_EQ(logged->count("loan shrunk from") >= json["questions"].size(), shrinks);
        return found;
    };
    const size_t all = found_with(uint64_t{1} << 30, false);
    EXPECT_EQ(all, json["questions"].size());
    settings.vram_budget = 0;
    EXPECT_EQ(found_with(smallest_budget(kStarter, settings), true), all);
}

TEST(Elastic, ALoweredBudgetKeepsConversationsAndARaisedOneTakesItsGranulesBack) {
    Settings settings = host_settings();
    settings.max_context = 2048;
    settings.threads = 2;
    settings.vram_budget = 40 << 20;
    auto logged = open(kStarter, settings);
    Engine& engine = *logged->engine;
    const auto ask = [&](ConversationId id, const std::string& text) {
        Request request;
        request.raw = text;
        request.use_raw = true;
        request.max_tokens = 24;
        std::string answer;
        Listener listener;
        listener.on_text = [&](std::string_view piece) { answer += piece; };
        const StopSignal stop;
        auto report = engine.answer(id, request, listener, stop);
        EXPECT_TRUE(report) << report.error().message();
        return std::pair(answer, report ? report->kept_tokens : 0u);
    };
    std::string text = "Note.";
    for (int i = 0; i < 60; ++i) text += " The lamp of room " + std::to_string(i) + " is green.";
    const ConversationId id = *engine.create_conversation();
    const auto first = ask(id, text);
    const uint32_t held = engine.cells(id);
    EXPECT_EQ(logged->count("experts refilled: "), 1u);
    const auto full = engine.bytes();

    Settings less = settings;
    less.vram_budget = 28 << 20;
    auto lowered = engine.apply(less);
    ASSERT_TRUE(lowered) << lowered.error().message();
    EXPECT_FALSE(*lowered);
    EXPECT_EQ(engine.cells(id), held);
    uint64_t sum = 0;
    for (uint64_t bytes : engine.bytes()) sum += bytes;
    EXPECT_EQ(sum, less.vram_budget);
    EXPECT_EQ(engine.bytes()[static_cast<int>(Owner::kv)], full[static_cast<int>(Owner::kv)]);
    const auto again = ask(id, text);
    EXPECT_EQ(again.first, first.first);
    EXPECT_GT(again.second, 500u);

    ASSERT_TRUE(engine.apply(settings));
    EXPECT_EQ(engine.bytes(), full);
    EXPECT_EQ(ask(id, text).first, first.first);
    EXPECT_EQ(engine.driver_allocations_after_load(), 0u);  // a raise is a load point
    EXPECT_EQ(logged->count("budget lowered from 40 MiB to 28 MiB"), 1u);
    EXPECT_EQ(logged->count("budget raised from 28 MiB to 40 MiB"), 1u);
}

TEST(Elastic, ALoweredBudgetKeepsConversationsAlsoWhereTheContextWasAuto) {
    Settings settings = host_settings();
    settings.threads = 2;
    settings.vram_budget = 40 << 20;
    auto logged = open(kStarter, settings);
    Engine& engine = *logged->engine;
    const ConversationId id = *engine.create_conversation();
    Request request;
    request.raw = "A lamp is green.";
    request.use_raw = true;
    request.max_tokens = 4;
    ASSERT_TRUE(engine.answer(id, request, {}, {}));
    const uint32_t held = engine.cells(id);
    ASSERT_GT(held, 0u);
    // As a window says it, which shows a number.
    settings.max_context = engine.plan().max_context;
    settings.vram_budget = 36 << 20;
    auto lowered = engine.apply(settings);
    ASSERT_TRUE(lowered) << lowered.error().message();
    EXPECT_FALSE(*lowered);
    EXPECT_EQ(engine.cells(id), held);
    EXPECT_EQ(engine.plan().budget_bytes, settings.vram_budget);
}

}  // namespace
}  // namespace granary::test

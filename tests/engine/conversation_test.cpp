// SPDX-License-Identifier: GPL-3.0-or-later
// Conversations that are edited, answered anew, gone on with, stopped, left and read again hold
// the same bits as one in a fresh engine that took the turns which are left of them.
#include <map>

#include "tests/engine/saved_conversation.h"
#include "tests/engine/small_hybrid.h"
#include "tests/host_settings.h"

namespace granary::test {
namespace {

// Small models that answer in letters, so that an answer's text gives its tokens back.
void letters_alone(const std::string& name, std::string& bytes) {
    if (name != "output.weight") return;
    const size_t row = bytes.size() / 259;
    for (size_t token = 0; token < 259; ++token)
        if (token < 'a' || token > 'z') std::fill_n(bytes.begin() + token * row, row, '\0');
}

struct Turn {
    std::string prompt;
    uint32_t answer = 16;
    uint64_t seed = 0;  // 0: greedy
};

std::string letters(size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::string text;
    for (size_t i = 0; i < count; ++i) text += static_cast<char>('a' + random() % 26);
    return text;
}

class Talk {
  public:
    Talk(Engine& engine) : engine_(engine), id(*engine.create_conversation()) {}

    // Asks with the turn at the end; on success the text has the answer, too.
    Report say(const Turn& turn, uint32_t stop_at = UINT32_MAX) {
        before_ = text;
        text += turn.prompt;
        return go_on(turn, stop_at);
    }
    // The answer of the last turn goes, and what `turn` says comes in its place.
    Report instead(const Turn& turn, uint32_t stop_at = UINT32_MAX) {
        text = before_;
        return say(turn, stop_at);
    }
    // Goes on from the text as it is. stop_at: the call of the listener at which it is stopped.
    Report go_on(const Turn& turn, uint32_t stop_at = UINT32_MAX) {
        Request request;
        request.use_raw = true;
        request.raw = text;
        request.max_tokens = turn.answer;
        if (turn.seed) {
            request.sampling.temperature = 1;
            request.sampling.top_k = 8;
            request.sampling.seed = turn.seed;
        }
        StopSignal stop;
        uint32_t calls = 0;
        const auto pass = [&] {
            if (calls++ == stop_at) stop.request();
        };
        Listener listener;
        listener.on_progress = [&](uint32_t done, uint32_t total, double eta) {
            EXPECT_LE(done, total);
            EXPECT_GE(eta, 0);
            pass();
        };
        listener.on_text = [&](std::string_view piece) {
            text += piece;
            pass();
        };
        const auto report = engine_.answer(id, request, listener, stop);
        EXPECT_TRUE(report) << report.error().message();
        return report ? *report : Report();
    }

  private:
    Engine& engine_;
    std::string before_;

  public:
    ConversationId id;
    std::string text;
};

struct Case {
    const char* name;
    bool hybrid;
    const char* budget;
    const char* chunk;
    uint64_t checkpoint_bytes;
    gpu::Arithmetic arithmetic = gpu::Arithmetic::fast;
};

void PrintTo(const Case& c, std::ostream* out) {
    *out << c.name;
}

class Conversations : public ::testing::TestWithParam<Case> {
  protected:
    std::unique_ptr<Engine> open(const Case& c) {
        Settings settings = host_settings();
        settings.max_context = max_context_;
        settings.threads = 1;
        EXPECT_TRUE(settings.set("vram-budget", c.budget));
        EXPECT_TRUE(settings.set("prefill", c.chunk));
        EngineOptions options;
        options.settings = settings;
        options.arithmetic = c.arithmetic;
        options.checkpoint_bytes = c.checkpoint_bytes;
        options.log = [this](LogLevel, std::string_view line) {
            loans_shrunk_ += line.starts_with("loan shrunk");
            trimmed_ += line.starts_with("K/V trimmed");
        };
        std::string& path = paths_[c.hybrid];
        if (path.empty()) {
            if (c.hybrid) {
                SmallHybrid model;
                model.spoil = letters_alone;
                path = model.save(folder_, "hybrid.gguf");
            } else {
                SmallModel model;
                model.spoil = letters_alone;
                path = model.save(folder_, "attention.gguf");
            }
        }
        auto engine = Engine::open(path, options);
        EXPECT_TRUE(engine) << engine.error().message();
        return engine ? std::move(*engine) : nullptr;
    }
    std::unique_ptr<Engine> open() { return open(GetParam()); }
    // The same turns, and no others, in an engine of its own that has memory enough.
    void expect_as_fresh(Engine& engine, Talk& talk, const std::vector<Turn>& turns) {
        Case large = GetParam();
        large.budget = "0";
        large.chunk = "512";
        large.checkpoint_bytes = 1 << 30;
        auto fresh = open(large);
        Talk other(*fresh);
        for (const Turn& turn : turns) other.say(turn);
        EXPECT_EQ(talk.text, other.text);
        // Who had to give something up reads it again.
        talk.go_on({"", 0});
        other.go_on({"", 0});
        expect_same(saved(engine, talk.id, folder_), saved(*fresh, other.id, folder_));
    }
    bool roomy() const { return GetParam().checkpoint_bytes >= 100'000; }
    void expect_sums(const Engine& engine) {
        uint64_t sum = 0;
        for (uint64_t bytes : engine.bytes()) sum += bytes;
        EXPECT_EQ(sum, engine.plan().budget_bytes);
        EXPECT_EQ(engine.driver_allocations_after_load(), 0u);
    }

    // The report says of the loan what the log has said since there were `before` lines of it.
    void expect_as_logged(const Report& report, unsigned before) {
        EXPECT_EQ(report.shrank_to > 0, loans_shrunk_ > before);
        EXPECT_EQ(report.memory_line().find("shrank") != std::string::npos, report.shrank_to > 0);
    }

    TempDir folder_;
    std::map<bool, std::string> paths_;
    uint32_t max_context_ = 2048;
    unsigned loans_shrunk_ = 0, trimmed_ = 0;
};

const Turn kFirst{letters(150, 1), 16}, kSecond{letters(70, 2), 20}, kThird{letters(300, 3), 9};

TEST_P(Conversations, TurnAfterTurn) {
    auto engine = open();
    Talk talk(*engine);
    for (const Turn& turn : {kFirst, kSecond, kThird}) {
        const Report report = talk.say(turn);
        EXPECT_EQ(report.kept_tokens + report.read_tokens, report.prompt_tokens);
        EXPECT_EQ(report.rewound_tokens, 0u);
        EXPECT_LE(report.read_tokens, turn.prompt.size() + 1);  // and the last one said
    }
    expect_as_fresh(*engine, talk, {kFirst, kSecond, kThird});
}

TEST_P(Conversations, AnotherAnswer) {
    auto engine = open();
    Talk talk(*engine);
    talk.say(kFirst);
    talk.say(kSecond);
    Turn other = kSecond;
    std::set<std::string> answers;
    for (uint64_t seed : {7, 8, 9}) {
        other.seed = seed;
        const Report report = talk.instead(other);
        // Logits are kept with a state; attention reads its last token again.
        if (roomy()) {
            EXPECT_EQ(report.read_tokens, GetParam().hybrid ? 0u : 1u);
        }
        answers.insert(talk.text);
    }
    EXPECT_GT(answers.size(), 1u);
    expect_as_fresh(*engine, talk, {kFirst, other});
}

TEST_P(Conversations, AnEditedQuestion) {
    for (const size_t same : {0u, 1u, 30u, 69u}) {
        auto engine = open();
        Talk talk(*engine);
        talk.say(kFirst);
        talk.say(kSecond);
        const Turn edited{kSecond.prompt.substr(0, same) + letters(90, 5), 12};
        const Report report = talk.instead(edited);
        if (roomy()) {
            EXPECT_LE(report.read_tokens, 95 + same);
        }
        if (!GetParam().hybrid) {
            EXPECT_EQ(report.rewound_tokens, 0u);
        }
        expect_as_fresh(*engine, talk, {kFirst, edited});
    }
}

TEST_P(Conversations, AnEditFarBack) {
    auto engine = open();
    Talk talk(*engine);
    talk.say(kFirst);
    const std::string after_first = talk.text;
    talk.say(kSecond);
    talk.say(kThird);
    talk.text = after_first;
    const Turn edited{letters(100, 6), 12};
    talk.say(edited);
    expect_as_fresh(*engine, talk, {kFirst, edited});
}

TEST_P(Conversations, GoingOnWithAStoppedAnswer) {
    auto engine = open();
    Talk talk(*engine);
    talk.say(kFirst);
    Turn longer = kSecond;
    longer.answer = 300;  // so that checkpoints fall into it
    // Stops in the answer: the last calls of the listener come from it.
    talk.say(longer, 60);
    const size_t said = talk.text.size() - 150 - 16 - 70;
    ASSERT_GT(said, 5u);
    ASSERT_LT(said, 300u);
    Turn rest = longer;
    rest.answer = static_cast<uint32_t>(300 - said);
    const Report report = talk.go_on(rest);
    EXPECT_LE(report.read_tokens, 1u);
    expect_as_fresh(*engine, talk, {kFirst, longer});
}

TEST_P(Conversations, StoppedAnywhereNothingFinishedIsLost) {
    // Every place where a person may stop the second turn, and then say something else.
    for (uint32_t moment = 0; moment < 60; moment += 3) {
        SCOPED_TRACE(moment);
        auto engine = open();
        Talk talk(*engine);
        talk.say(kFirst);
        const uint32_t before = engine->cells(talk.id);
        const Report stopped = talk.say(kThird, moment);
        if (stopped.finish != Finish::stopped) break;
        const uint32_t after = engine->cells(talk.id);
        if (roomy()) {
            EXPECT_GE(after, before);
        }
        EXPECT_EQ(after, stopped.kept_tokens + stopped.read_tokens +
                             (stopped.answer_tokens ? stopped.answer_tokens : 0));
        const Report again = talk.instead(kThird);
        if (roomy()) {
            EXPECT_GE(again.kept_tokens + again.rewound_tokens + 1,
                      std::min(after, again.prompt_tokens));
        }
        expect_as_fresh(*engine, talk, {kFirst, kThird});
        if (HasFailure()) return;
    }
}

TEST_P(Conversations, SwitchingBackAndForth) {
    auto engine = open();
    Talk a(*engine), b(*engine), c(*engine);
    a.say(kFirst);
    b.say(kThird);
    a.say(kSecond);
    c.say(kSecond);
    Turn other = kThird;
    other.seed = 4;
    b.instead(other);
    const bool held = engine->cells(a.id) > 0;  // else there was no room for its K/V
    const Report report = a.say({letters(40, 8), 10});
    if (roomy() && held) {
        EXPECT_LE(report.read_tokens, 41u);
    }
    b.say(kFirst);
    expect_sums(*engine);
    expect_as_fresh(*engine, a, {kFirst, kSecond, {letters(40, 8), 10}});
    expect_as_fresh(*engine, b, {other, kFirst});
    expect_as_fresh(*engine, c, {kSecond});
}

// K/V is gone and all is read again, each token by the kernels that read it first.
TEST_P(Conversations, ReadAgainInKind) {
    auto engine = open();
    Talk talk(*engine);
    Turn second = kSecond;
    second.answer = 150;
    talk.say(kFirst);
    talk.say(second);
    Settings settings = engine->plan().settings;
    settings.max_context = 1536;  // laid anew
    auto anew = engine->apply(settings);
    ASSERT_TRUE(anew) << anew.error().message();
    ASSERT_TRUE(*anew);
    EXPECT_EQ(engine->cells(talk.id), 0u);
    // Stopped on the way, it still knows the rest.
    const std::string text = talk.text;
    for (uint32_t moment : {2u, 7u, 16u}) {
        talk.go_on(kThird, moment);
        talk.text = text;
    }
    const Report report = talk.say(kThird);
    EXPECT_EQ(report.kept_tokens + report.read_tokens, report.prompt_tokens);
    expect_as_fresh(*engine, talk, {kFirst, second, kThird});
    // An answer goes on after its own tokens were read again.
    settings.max_context = 2048;
    settings.prefill_stream_min = {AutoCount::Kind::number, 1};
    // On a card with the least memory, so that experts must stream.
    for (Settings less = settings; settings.vram_budget; settings = less) {
        less.vram_budget -= 64 << 10;
        if (!engine->planner().plan(less)) break;
    }
    ASSERT_TRUE(engine->apply(settings));
    const unsigned shrunk = loans_shrunk_;
    const Report again = talk.go_on({"", 10});
    EXPECT_GE(again.chunks.size(), 3u);  // a loan for each turn's prompt
    expect_as_logged(again, shrunk);
    // The experts of the other model all have room.
    EXPECT_EQ(again.bytes_streamed > 0, GetParam().hybrid && settings.vram_budget > 0);
    Turn third = kThird;
    third.answer += 10;
    expect_as_fresh(*engine, talk, {kFirst, second, third});
}

class LongConversations : public Conversations {};

// K/V that the whole needs is not given back for a short part in front.
TEST_P(LongConversations, ReadAgainInKindTrimsOnce) {
    max_context_ = 16384;
    auto engine = open();
    Talk talk(*engine);
    talk.say(kFirst);
    talk.say({letters(9000, 5), 4});
    const Report again = talk.instead({letters(8999, 5) + "A", 4});  // the state is behind the edit
    EXPECT_EQ(again.kept_tokens, 0u);
    EXPECT_GE(again.chunks.size(), 2u);
    EXPECT_EQ(again.kv_granules_added, 0u);
    EXPECT_EQ(trimmed_, 0u);
    talk.text.resize(300);
    talk.go_on({"", 4});
    EXPECT_EQ(trimmed_, 1u);
}

// Who does not ask for the same numbers reads all of it as one prompt.
TEST_P(Conversations, ReadAgainInOneGoWhereNumbersMayDiffer) {
    auto engine = open();
    Talk talk(*engine);
    talk.say(kFirst);
    talk.say(kSecond);
    EXPECT_EQ(saved(*engine, talk.id, folder_).header.spans, 4u);
    Settings settings = engine->plan().settings;
    settings.deterministic = false;
    settings.max_context = 1536;
    ASSERT_TRUE(engine->apply(settings));
    talk.say(kThird);
    EXPECT_EQ(saved(*engine, talk.id, folder_).header.spans, 2u);
}

// Turns at random, several conversations, each as if it were alone.
TEST_P(Conversations, AnythingAtRandom) {
    for (unsigned seed = 1; seed <= 3; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        auto engine = open();
        struct One {
            Talk talk;
            std::vector<Turn> turns;
        };
        std::vector<One> all;
        for (int i = 0; i < 3; ++i) all.push_back({Talk(*engine), {}});
        for (int step = 0; step < 24; ++step) {
            One& one = all[random() % all.size()];
            Turn turn{letters(1 + random() % 120, static_cast<unsigned>(random())),
                      static_cast<uint32_t>(random() % 30), random() % 2 ? random() % 100 : 0};
            const uint32_t stop_at =
                random() % 4 ? UINT32_MAX : static_cast<uint32_t>(random() % 9);
            const auto choice = random() % 3;
            if (one.turns.empty() || (choice == 0 && one.talk.text.size() < 1200)) {
                one.talk.say(turn, stop_at);
                one.turns.push_back(turn);
            } else if (choice == 1) {  // another answer
                turn.prompt = one.turns.back().prompt;
                one.talk.instead(turn, stop_at);
                one.turns.back() = turn;
            } else {
                one.talk.instead(turn, stop_at);
                one.turns.back() = turn;
            }
            // A stopped turn is said again, whole.
            if (stop_at != UINT32_MAX) one.talk.instead(turn);
            expect_sums(*engine);
            if (HasFailure()) return;
        }
        for (One& one : all)
            if (!one.turns.empty()) expect_as_fresh(*engine, one.talk, one.turns);
    }
}

INSTANTIATE_TEST_SUITE_P(All, Conversations,
                         ::testing::Values(Case{"Attention", false, "0", "512", 1 << 30},
                                           Case{"AttentionCard", false, "3MiB", "64", 1 << 30},
                                           Case{"Hybrid", true, "0", "512", 1 << 30},
                                           Case{"HybridF32", true, "0", "100", 1 << 30,
                                                gpu::Arithmetic::f32},
                                           Case{"HybridCard", true, "5MiB", "64", 1 << 30},
                                           // 16.5 KiB a state: four of them, and one.
                                           Case{"HybridFourStates", true, "0", "128", 70'000},
                                           Case{"HybridOneState", true, "0", "64", 1}),
                         [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(All, LongConversations,
                         ::testing::Values(Case{"HybridOneState", true, "0", "512", 1}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace granary::test

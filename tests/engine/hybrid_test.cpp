// SPDX-License-Identifier: GPL-3.0-or-later
// Models whose layers keep a state: reading and answering must not depend on how a prompt is cut,
// on who ran in between, or on what was stopped.
#include "engine/model/model.h"
#include "tests/engine/fixture.h"
#include "tests/engine/small_hybrid.h"
#include "tests/host_settings.h"

namespace granary::test {
namespace {

Settings settings_of(const std::string& budget, uint32_t chunk = 0) {
    Settings settings = host_settings();
    settings.max_context = 2048;
    settings.threads = 2;
    EXPECT_TRUE(settings.set("vram-budget", budget));
    if (chunk) settings.prefill = {AutoCount::Kind::number, chunk};
    return settings;
}

std::vector<TokenId> some_tokens(size_t count, unsigned seed = 5) {
    std::mt19937 random(seed);
    std::vector<TokenId> tokens(count);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 256);
    return tokens;
}

std::string some_text(size_t letters, unsigned seed) {
    std::mt19937 random(seed);
    std::string text;
    for (size_t i = 0; i < letters; ++i) text += static_cast<char>('a' + random() % 26);
    return text;
}

class Hybrid : public ::testing::Test {
  protected:
    std::unique_ptr<Engine> open(const SmallHybrid& model, const Settings& settings,
                                 gpu::Arithmetic arithmetic = gpu::Arithmetic::f32) {
        EngineOptions options;
        options.settings = settings;
        options.arithmetic = arithmetic;
        auto engine = Engine::open(model.save(folder_, "model.gguf"), options);
        EXPECT_TRUE(engine) << engine.error().message();
        return engine ? std::move(*engine) : nullptr;
    }
    LogitsResult logits(const SmallHybrid& model, const LogitsRequest& request,
                        const Settings& settings = settings_of("0")) {
        auto engine = open(model, settings);
        auto result = engine->logits(request);
        EXPECT_TRUE(result) << result.error().message();
        return *result;
    }
    TempDir folder_;
};

struct Answer {
    Report report;
    std::string text;
};
Answer ask(Engine& engine, ConversationId id, const std::string& prompt, uint32_t most = 12) {
    Request request;
    request.raw = prompt;
    request.use_raw = true;
    request.max_tokens = most;
    Answer answer;
    Listener listener;
    listener.on_text = [&](std::string_view text) { answer.text += text; };
    const StopSignal stop;
    auto report = engine.answer(id, request, listener, stop);
    EXPECT_TRUE(report) << report.error().message();
    if (report) answer.report = *report;
    return answer;
}

TEST_F(Hybrid, AnyChunkAndEveryBudgetGiveTheSameNumbers) {
    const LogitsRequest request{some_tokens(400), {0, 63, 64, 65, 399}, 24};
    const LogitsResult whole = logits({}, request, settings_of("0", 512));
    for (const uint32_t chunk : {64u, 100u, 128u, 200u})
        for (const char* budget : {"0", "6MiB"}) {
            const LogitsResult cut = logits({}, request, settings_of(budget, chunk));
            EXPECT_EQ(cut.logits, whole.logits) << chunk << " " << budget;
            EXPECT_EQ(cut.argmax, whole.argmax);
            EXPECT_EQ(cut.greedy, whole.greedy);
        }
}

// The chunked form of the prompt and the recurrent one of decode say the same.
TEST_F(Hybrid, DecodeAgreesWithPrompt) {
    LogitsRequest request{some_tokens(100), {}, 80};
    const LogitsResult decoded = logits({}, request);
    const auto first = static_cast<std::ptrdiff_t>(request.tokens.size()) - 1;
    request.tokens.insert(request.tokens.end(), decoded.greedy.begin(), decoded.greedy.end() - 1);
    request.greedy = 0;
    const LogitsResult read = logits({}, request);
    EXPECT_EQ(std::vector<TokenId>(read.argmax.begin() + first, read.argmax.end()), decoded.greedy);
}

TEST_F(Hybrid, FusedAndSeparateExpertsAreTheSame) {
    const LogitsRequest request{some_tokens(70), {69}, 8};
    SmallHybrid fused;
    fused.fused = true;
    for (const char* budget : {"0", "6MiB"})
        EXPECT_EQ(logits(fused, request, settings_of(budget)).logits, logits({}, request).logits);
}

TEST_F(Hybrid, PredictionBlocksAreSkipped) {
    const LogitsRequest request{some_tokens(70), {69}, 8};
    SmallHybrid with;
    with.unused = 2;
    EXPECT_EQ(logits(with, request).logits, logits({}, request).logits);
    auto engine = open(with, settings_of("6MiB"));
    EXPECT_EQ(engine->model().layers, 4u);
}

TEST_F(Hybrid, StateIsPartOfTheBudget) {
    auto engine = open({}, settings_of("6MiB"));
    const Plan& plan = engine->plan();
    EXPECT_EQ(uint64_t{plan.fixed} + plan.workspace + plan.state + plan.expert_range,
              plan.budget_bytes / plan.granule_bytes);
    const uint64_t state = engine->bytes()[static_cast<int>(Owner::state)];
    EXPECT_EQ(state, plan.state * plan.granule_bytes);
    // 3 layers: 3 rows of 128 channels and 4 heads of 16 x 16.
    EXPECT_EQ(engine->model().state_bytes, 3u * (3 * 128 + 4 * 16 * 16) * 4);
    EXPECT_GE(state, engine->model().state_bytes);
    uint64_t sum = 0;
    for (uint64_t bytes : engine->bytes()) sum += bytes;
    EXPECT_EQ(sum, plan.budget_bytes);
    // Only the attention layer has K/V.
    EXPECT_EQ(engine->model().kv_bytes_per_token, 2u * 2 * 16 * 2);
}

TEST_F(Hybrid, ConversationsDoNotDisturbEachOther) {
    const std::string a = some_text(150, 1), b = some_text(90, 2);
    auto engine = open({}, settings_of("0"));
    const auto alone = [&](const std::string& prompt) {
        const ConversationId id = *engine->create_conversation();
        const std::string text = ask(*engine, id, prompt).text;
        engine->drop_conversation(id);
        return text;
    };
    const std::string first_a = alone(a), first_b = alone(b);
    const ConversationId one = *engine->create_conversation();
    const ConversationId two = *engine->create_conversation();
    EXPECT_EQ(ask(*engine, one, a).text, first_a);
    EXPECT_EQ(ask(*engine, two, b).text, first_b);
    // The prompt goes on in the place of its answer, from the checkpoint at its end.
    const std::string more = some_text(40, 3);
    const uint32_t held = engine->cells(one);
    ASSERT_GE(held, 150u);
    const Answer changed = ask(*engine, one, a + more);
    EXPECT_EQ(changed.report.kept_tokens, 150u);
    EXPECT_EQ(changed.text, alone(a + more));
    EXPECT_EQ(ask(*engine, two, b).text, first_b);
}

TEST_F(Hybrid, ExactContinuationIsKept) {
    auto engine = open({}, settings_of("0"));
    const std::string a = some_text(150, 1), more = some_text(77, 3);
    const ConversationId one = *engine->create_conversation();
    const ConversationId two = *engine->create_conversation();
    ask(*engine, one, a, 0);
    EXPECT_EQ(engine->cells(one), 150u);
    ask(*engine, two, more, 0);  // takes the place in the pool
    const Answer kept = ask(*engine, one, a + more);
    EXPECT_EQ(kept.report.kept_tokens, 150u);
    EXPECT_EQ(kept.report.read_tokens, 77u);
    const ConversationId fresh = *engine->create_conversation();
    EXPECT_EQ(kept.text, ask(*engine, fresh, a + more).text);
}

TEST_F(Hybrid, AnotherAnswerReadsNothingAndAnEditLittle) {
    for (const char* chunk : {"512", "64"}) {
        Settings settings = settings_of("0");
        ASSERT_TRUE(settings.set("prefill", chunk));
        auto engine = open({}, settings);
        const std::string document = some_text(900, 1), question = some_text(30, 2);
        const ConversationId id = *engine->create_conversation();
        const Answer first = ask(*engine, id, document + question, 40);
        const Answer again = ask(*engine, id, document + question, 40);
        EXPECT_EQ(again.report.kept_tokens, 930u);
        EXPECT_EQ(again.report.read_tokens, 0u);
        EXPECT_EQ(again.text, first.text);
        const Answer edited = ask(*engine, id, document + some_text(33, 4), 40);
        EXPECT_GE(edited.report.kept_tokens, 930u - 2 * 64);
        EXPECT_EQ(edited.report.kept_tokens + edited.report.read_tokens, 933u);
        EXPECT_GE(edited.report.kept_tokens + edited.report.rewound_tokens, 900u);
        const ConversationId fresh = *engine->create_conversation();
        EXPECT_EQ(ask(*engine, fresh, document + some_text(33, 4), 40).text, edited.text);
    }
}

TEST_F(Hybrid, StoppedReadingKeepsFinishedChunksAndTheirState) {
    auto engine = open({}, settings_of("0", 64));
    const std::string prompt = some_text(300, 8);
    const ConversationId fresh = *engine->create_conversation();
    const std::string expected = ask(*engine, fresh, prompt).text;
    for (const uint32_t stop_at : {10u, 100u, 170u}) {
        const ConversationId id = *engine->create_conversation();
        Request request;
        request.raw = prompt;
        request.use_raw = true;
        request.max_tokens = 12;
        StopSignal stop;
        Listener listener;
        listener.on_progress = [&](uint32_t done, uint32_t, double) {
            if (done >= stop_at) stop.request();
        };
        auto report = engine->answer(id, request, listener, stop);
        ASSERT_TRUE(report) << report.error().message();
        EXPECT_EQ(report->finish, Finish::stopped);
        EXPECT_EQ(engine->cells(id), stop_at / 64 * 64);
        const Answer rest = ask(*engine, id, prompt);
        EXPECT_EQ(rest.report.kept_tokens, stop_at / 64 * 64);
        EXPECT_EQ(rest.text, expected) << stop_at;
    }
}

TEST_F(Hybrid, NewSettingsBeginAnew) {
    auto engine = open({}, settings_of("6MiB"));
    const std::string prompt = some_text(130, 4);
    const ConversationId id = *engine->create_conversation();
    const std::string expected = ask(*engine, id, prompt).text;
    Settings longer = settings_of("6MiB");
    longer.max_context = 4096;
    ASSERT_TRUE(engine->apply(longer));
    EXPECT_EQ(engine->cells(id), 0u);
    EXPECT_EQ(ask(*engine, id, prompt).text, expected);
}

TEST_F(Hybrid, FastArithmeticEndsAndStaysClose) {
    const LogitsRequest request{some_tokens(200), {199}, 8};
    const LogitsResult exact = logits({}, request);
    auto engine = open({}, settings_of("6MiB"), gpu::Arithmetic::fast);
    auto fast = engine->logits(request);
    ASSERT_TRUE(fast) << fast.error().message();
    EXPECT_LT(relative_l2(fast->logits[0], exact.logits[0]), 3e-2);
}

TEST_F(Hybrid, ShapesThatWouldBeReadWrongAreRefused) {
    const auto refusal = [&](const SmallHybrid& model) {
        auto file = gguf::File::open(model.save(folder_, "refused.gguf"));
        EXPECT_TRUE(file);
        auto loaded = load_model(std::move(*file));
        EXPECT_FALSE(loaded);
        return loaded ? std::string() : loaded.error().message();
    };
    for (const auto& [key, value] :
         std::multimap<std::string, uint32_t>{{"ssm.conv_kernel", 1},
                                              {"ssm.conv_kernel", 9},
                                              {"ssm.state_size", 1u << 20},
                                              {"ssm.group_count", 3},
                                              {"ssm.inner_size", 128},
                                              {"ssm.time_step_rank", 0},
                                              {"block_count", 5},
                                              {"embedding_length", 72}}) {
        SmallHybrid model;
        model.other[key] = value;
        EXPECT_FALSE(refusal(model).empty()) << key;
    }
    SmallHybrid odd;
    odd.delta_dim = 24;
    EXPECT_NE(refusal(odd).find("head size 24"), std::string::npos);
    SmallHybrid all_unused;
    all_unused.unused = 1;
    all_unused.other["nextn_predict_layers"] = 5;
    EXPECT_FALSE(refusal(all_unused).empty());
    SmallHybrid both;
    both.more = [](GgufBuilder& file) {
        file.tensor("blk.0.attn_q.weight", gpu::WeightType::f32, {1}, raw(1.0f));
    };
    EXPECT_NE(refusal(both).find("at once"), std::string::npos);
    for (const char* part : {"ssm_a", "ssm_conv1d.weight", "attn_gate.weight",
                             "ffn_gate_inp_shexp.weight", "ffn_up_shexp.weight"}) {
        SmallHybrid model;
        model.without = {std::string("blk.0.") + part};
        EXPECT_NE(refusal(model).find(part), std::string::npos);
    }
    SmallHybrid extra;
    extra.more = [](GgufBuilder& file) {
        file.tensor("blk.0.attn_q.bias", gpu::WeightType::f32, {1}, raw(1.0f));
    };
    EXPECT_NE(refusal(extra).find("attn_q.bias"), std::string::npos);
}

}  // namespace
}  // namespace granary::test

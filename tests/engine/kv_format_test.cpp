// SPDX-License-Identifier: GPL-3.0-or-later
// What the K/V formats cost a whole model, and that each gives the same tokens however it is read.
#include <algorithm>
#include <random>

#include "tests/engine/fixture.h"
#include "tests/engine/small_hybrid.h"
#include "tests/host_settings.h"

namespace granary::test {
namespace {

const std::string kMicro = GRANARY_TEST_DATA "/micro/micro-qwen3moe";

Settings with(const char* format) {
    Settings settings = host_settings();
    EXPECT_TRUE(settings.set("kv", format));
    return settings;
}

// Logits at every position in f32 arithmetic, where the K/V format is all that differs from f32
// cells. Measured: median and largest relative L2, and at how many positions the most likely token
// stays.
//            micro                    starter
//   f16      1.0e-4  2.3e-4  96/96    2.9e-4  8.0e-4  200/200
//   int8     2.5e-3  0.053   93/96    9.3e-3  0.16    192/200
//   k8v4     0.036   0.089   87/96    0.064   0.19    176/200
//   q4       0.044   0.095   87/96    0.11    0.34    153/200
// Bounds are a third above. The largest errors are positions where a small change sends a token to
// another expert. Both models are small, which makes 4 bits dear: their heads have 16 and 64
// values.
struct Bound {
    const char* format;
    double median, largest;
    size_t same;
};

void expect_cost(const std::string& model, Fixture fixture, std::initializer_list<Bound> bounds) {
    fixture.positions.clear();
    for (uint32_t i = 0; i < fixture.tokens.size(); ++i) fixture.positions.push_back(i);
    fixture.greedy.clear();
    const auto exact = compute(model, fixture, gpu::Arithmetic::f32);
    ASSERT_TRUE(exact) << exact.error().message();
    double before = 0;
    for (const Bound& bound : bounds) {
        const auto kept = compute(model, fixture, gpu::Arithmetic::f32, with(bound.format));
        ASSERT_TRUE(kept) << kept.error().message();
        std::vector<double> errors;
        for (size_t i = 0; i < exact->logits.size(); ++i)
            errors.push_back(relative_l2(kept->logits[i], exact->logits[i]));
        std::sort(errors.begin(), errors.end());
        const double median = errors[errors.size() / 2];
        EXPECT_LT(median, bound.median) << bound.format;
        EXPECT_LT(errors.back(), bound.largest) << bound.format;
        EXPECT_GE(equal_count(kept->argmax, exact->argmax), bound.same) << bound.format;
        EXPECT_GT(median, before) << bound.format << " costs less than a larger format";
        before = median;
    }
}

TEST(KvFormats, CostAMicroModelWhatWasMeasured) {
    expect_cost(kMicro + ".gguf", read_fixture(kMicro + ".json"),
                {{"f16", 1.5e-4, 5e-4, 95},
                 {"int8", 4e-3, 0.08, 90},
                 {"k8v4", 0.05, 0.13, 83},
                 {"q4", 0.06, 0.13, 83}});
}

TEST(KvFormats, CostTheStarterWhatWasMeasured) {
    expect_cost(kStarter, read_fixture(GRANARY_TEST_DATA "/starter/starter.logits.json.gz"),
                {{"f16", 4e-4, 2e-3, 199},
                 {"int8", 0.013, 0.25, 187},
                 {"k8v4", 0.085, 0.3, 170},
                 {"q4", 0.14, 0.45, 145}});
}

// Whatever the chunk and the budget: a chunk attends to stored cells only, its own too.
TEST(KvFormats, EachGivesTheSameTokensAtAnyChunkAndBudget) {
    const Fixture fixture = read_fixture(GRANARY_TEST_DATA "/starter/starter.logits.json.gz");
    std::vector<std::vector<TokenId>> answers;
    for (const char* format : {"f16", "int8", "k8v4", "q4"}) {
        std::optional<LogitsResult> first;
        for (const auto& [budget, chunk] : {std::pair{"0", "auto"},
                                            {"0", "64"},
                                            {"23MiB", "64"},
                                            {"25MiB", "100"},
                                            {"40MiB", "128"},
                                            {"200MiB", "auto"}}) {
            Settings settings = with(format);
            ASSERT_TRUE(settings.set("vram-budget", budget));
            ASSERT_TRUE(settings.set("prefill", chunk));
            ASSERT_TRUE(settings.set("max-context", "512"));
            auto result = compute(kStarter, fixture, gpu::Arithmetic::fast, settings);
            ASSERT_TRUE(result) << format << " " << budget << " " << result.error().message();
            if (!first) {
                first = *result;
                answers.push_back(result->argmax);
                continue;
            }
            EXPECT_EQ(result->logits, first->logits) << format << " " << budget << " " << chunk;
            EXPECT_EQ(result->argmax, first->argmax) << format << " " << budget << " " << chunk;
            EXPECT_EQ(result->greedy, first->greedy) << format << " " << budget << " " << chunk;
        }
    }
    // The setting acts: no two formats agree everywhere.
    for (size_t i = 0; i < answers.size(); ++i)
        for (size_t j = 0; j < i; ++j) EXPECT_NE(answers[i], answers[j]);
}

// Recurrent layers beside attention, heads of 16 with gates: the output is rotated back before
// them. Measured at the first token, which sees itself alone: 1.2e-3, 0.020, 0.020.
TEST(KvFormats, HybridsRunInEach) {
    TempDir folder;
    const std::string path = SmallHybrid().save(folder, "hybrid.gguf");
    std::mt19937 random(5);
    LogitsRequest request;
    for (int i = 0; i < 300; ++i) request.tokens.push_back(static_cast<TokenId>(random() % 250));
    request.positions = {0, 150, 299};
    request.greedy = 12;
    const auto run = [&](const char* format, const char* chunk) {
        EngineOptions options;
        options.settings = with(format);
        EXPECT_TRUE(options.settings.set("prefill", chunk));
        auto engine = Engine::open(path, options);
        EXPECT_TRUE(engine) << engine.error().message();
        auto result = (*engine)->logits(request);
        EXPECT_TRUE(result) << result.error().message();
        return *result;
    };
    const LogitsResult exact = run("f16", "auto");
    for (const auto& [format, bound] : {std::pair{"int8", 2e-3}, {"k8v4", 0.03}, {"q4", 0.03}}) {
        const LogitsResult result = run(format, "auto");
        for (size_t i = 0; i < exact.logits.size(); ++i) {
            const double error = relative_l2(result.logits[i], exact.logits[i]);
            EXPECT_LT(error, bound) << format << " " << i;
            EXPECT_GT(error, 0) << format;
        }
        EXPECT_EQ(run(format, "64").logits, result.logits) << format;
    }
}

}  // namespace
}  // namespace granary::test

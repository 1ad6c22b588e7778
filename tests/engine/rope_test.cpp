// SPDX-License-Identifier: GPL-3.0-or-later
// Contexts past the trained length: tables against the papers' formulas, what files and settings
// ask for, and whole models.
#include "engine/model/rope.h"

#include <gtest/gtest.h>

#include <numbers>

#include "engine/model/model.h"
#include "tests/engine/fixture.h"
#include "tests/engine/small_model.h"
#include "tests/host_settings.h"

namespace granary::test {
namespace {

RopeScaling yarn(double factor, uint32_t original) {
    RopeScaling rope;
    rope.kind = RopeKind::yarn;
    rope.factor = factor;
    rope.original = original;
    return rope;
}

// Turns of pair i within one token, as trained.
double trained_turns(uint32_t i, uint32_t dims, double base) {
    return std::exp(-2.0 * i / dims * std::log(base)) / (2 * std::numbers::pi);
}

// YaRN's table from its definition: pairs that turn `fast` times within the trained length stay,
// those that turn `slow` times are interpolated; the ramp is a straight line over the numbers of
// pairs from the last whole pair of the one kind to the first of the other.
std::vector<double> expected_yarn(uint32_t dims, double base, double factor, double original,
                                  double fast, double slow, double extrapolation) {
    int low = 0, high = static_cast<int>(dims) - 1;
    for (int i = 0; i < static_cast<int>(dims); ++i)
        if (original * trained_turns(i, dims, base) >= fast) low = i;
    for (int i = static_cast<int>(dims) - 1; i >= 0; --i)
        if (original * trained_turns(i, dims, base) <= slow) high = i;
    std::vector<double> turns;
    for (int i = 0; i < static_cast<int>(dims / 2); ++i) {
        const double plain = trained_turns(i, dims, base);
        const double ramp = i <= low ? 0.0 : i >= high ? 1.0 : double(i - low) / double(high - low);
        const double stay = (1 - ramp) * extrapolation;
        turns.push_back(stay * plain + (1 - stay) * plain / factor);
    }
    return turns;
}

TEST(Rope, YarnTablesFollowTheirDefinition) {
    struct Case {
        uint32_t dims;
        double base, factor;
        uint32_t original;
        double fast, slow, extrapolation;
    };
    for (const Case& c : {Case{128, 1e6, 4, 32768, 32, 1, 1}, Case{64, 1e7, 2, 262144, 32, 1, 1},
                          Case{64, 150000, 32, 4096, 32, 1, 1}, Case{80, 1e4, 1.5, 4096, 16, 2, 1},
                          Case{128, 1e6, 4, 32768, 32, 1, 0.25}, Case{2, 1e4, 8, 100, 32, 1, 1}}) {
        SCOPED_TRACE(std::to_string(c.dims) + " " + std::to_string(c.factor));
        RopeScaling scaling = yarn(c.factor, c.original);
        scaling.beta_fast = c.fast;
        scaling.beta_slow = c.slow;
        scaling.extrapolation = c.extrapolation;
        const auto table = rope_table(c.dims, c.base, scaling);
        const auto expected =
            expected_yarn(c.dims, c.base, c.factor, c.original, c.fast, c.slow, c.extrapolation);
        ASSERT_EQ(table->pairs(), c.dims / 2);
        for (uint32_t i = 0; i < table->pairs(); ++i)
            EXPECT_NEAR(table->turns[i] / expected[i], 1, 1e-13) << i;
        EXPECT_FLOAT_EQ(table->magnitude, static_cast<float>(1 + 0.1 * std::log(c.factor)));
        scaling.attention = 0.5;
        EXPECT_FLOAT_EQ(rope_table(c.dims, c.base, scaling)->magnitude, table->magnitude / 2);
    }
}

// The ends of the ramp, told from the paper: wavelengths under 1/32 of the trained length are left
// alone, those over it are interpolated whole.
TEST(Rope, YarnLeavesFastPairsAndStretchesSlowOnes) {
    const auto table = rope_table(128, 1e6, yarn(4, 32768));
    const auto plain = gpu::rope_table(128, 1e6);
    uint32_t left = 0, stretched = 0;
    for (uint32_t i = 0; i < 64; ++i) {
        const double ratio = table->turns[i] / plain->turns[i], within = 32768 * plain->turns[i];
        EXPECT_GE(ratio, within >= 32 ? 1 : 0.25) << i;
        EXPECT_LE(ratio, within <= 1 ? 0.25 + 1e-15 : 1) << i;
        left += ratio == 1;
        stretched += ratio < 0.2500001;
    }
    EXPECT_EQ(left, 24u);       // pair 23 turns 36 times within 32,768 tokens, pair 24 turns 29
    EXPECT_EQ(stretched, 24u);  // pair 39 turns 1.15 times, pair 40 0.93
}

TEST(Rope, LinearTablesTurnSlowerByTheFactor) {
    RopeScaling linear;
    linear.kind = RopeKind::linear;
    linear.factor = 4;
    const auto table = rope_table(64, 1e4, linear), plain = rope_table(64, 1e4, {});
    for (uint32_t i = 0; i < 32; ++i) {
        EXPECT_EQ(table->turns[i], plain->turns[i] / 4);
        EXPECT_NEAR(plain->turns[i] / trained_turns(i, 64, 1e4), 1, 1e-14);
    }
    EXPECT_EQ(table->magnitude, 1);
    EXPECT_EQ(plain->magnitude, 1);
}

class RopeModel : public ::testing::Test {
  protected:
    using Keys = std::vector<std::pair<const char*, float>>;
    // A model trained for 256 tokens whose file has these keys under rope.scaling.
    std::string file(const std::string& type, const Keys& keys) {
        SmallModel model;
        model.context = 256;
        model.more = [&](GgufBuilder& builder) {
            const std::string prefix = "qwen3moe.rope.scaling.";
            if (!type.empty()) builder.put(prefix + "type", type);
            for (const auto& [key, value] : keys)
                if (std::string_view(key) == "original_context_length")
                    builder.put(prefix + key, static_cast<uint32_t>(value));
                else
                    builder.put(prefix + key, value);
        };
        return model.save(folder_, std::to_string(++files_) + ".gguf");
    }
    static Result<Model> load(const std::string& path) {
        auto file = gguf::File::open(path);
        EXPECT_TRUE(file);
        return load_model(*file);
    }
    static Settings settings(std::initializer_list<std::pair<const char*, const char*>> values) {
        Settings settings = host_settings();
        settings.threads = 1;
        for (const auto& [name, value] : values) EXPECT_TRUE(settings.set(name, value)) << value;
        return settings;
    }
    // f32 logits of the last of 600 tokens.
    static std::vector<float> logits(const std::string& path, const Settings& settings) {
        Fixture fixture;
        std::mt19937 random(3);
        for (int i = 0; i < 600; ++i)
            fixture.tokens.push_back(static_cast<TokenId>(random() % 256));
        fixture.positions = {599};
        auto result = compute(path, fixture, gpu::Arithmetic::f32, settings);
        EXPECT_TRUE(result) << result.error().message();
        return result ? result->logits[0] : std::vector<float>();
    }
    TempDir folder_;
    int files_ = 0;
};

TEST_F(RopeModel, FilesSayHowTheyAreStretched) {
    const auto plain = load(file("", {}));
    ASSERT_TRUE(plain);
    EXPECT_EQ(plain->facts.rope.kind, RopeKind::none);
    EXPECT_EQ(plain->facts.rope.original, 256u);
    // Before there was a type, a factor stood for linear scaling.
    const auto old = load(file("", {{"factor", 2.0f}}));
    ASSERT_TRUE(old);
    EXPECT_EQ(old->facts.rope.text(), "stretched by 2 linearly");
    const auto off = load(file("none", {{"factor", 2.0f}}));
    ASSERT_TRUE(off);
    EXPECT_EQ(off->facts.rope.text(), "as trained");
    EXPECT_EQ(off->facts.rope.factor, 1);
    const auto full = load(file("yarn", {{"factor", 4.0f},
                                         {"original_context_length", 64},
                                         {"yarn_beta_fast", 24.0f},
                                         {"yarn_beta_slow", 2.0f},
                                         {"yarn_ext_factor", 0.5f},
                                         {"attn_factor", 1.5f},
                                         {"yarn_attn_factor", 2.0f}}));
    ASSERT_TRUE(full) << full.error().message();
    RopeScaling expected = yarn(4, 64);
    expected.beta_fast = 24;
    expected.beta_slow = 2;
    expected.extrapolation = 0.5;
    expected.attention = 3;
    EXPECT_EQ(full->facts.rope, expected);
}

TEST_F(RopeModel, FilesWithImpossibleScalingAreRefused) {
    const auto expect = [&](const std::string& type, const Keys& keys, ErrorKind kind,
                            const char* reason) {
        const auto model = load(file(type, keys));
        ASSERT_FALSE(model) << reason;
        EXPECT_EQ(model.error().kind, kind);
        EXPECT_NE(model.error().message().find(reason), std::string::npos)
            << model.error().message();
    };
    expect("longrope", {}, ErrorKind::unsupported, "longrope");
    for (const float factor : {0.5f, 0.0f, -4.0f, 1e9f, NAN, INFINITY})
        expect("yarn", {{"factor", factor}}, ErrorKind::invalid_file, "rope.scaling.factor");
    expect("yarn", {{"factor", 4.0f}, {"yarn_beta_fast", NAN}}, ErrorKind::invalid_file,
           "yarn_beta_fast");
    expect("yarn", {{"factor", 4.0f}, {"yarn_ext_factor", -1.0f}}, ErrorKind::invalid_file,
           "yarn_ext_factor");
    expect("yarn", {{"factor", 4.0f}, {"original_context_length", 0}}, ErrorKind::invalid_file,
           "original_context_length");
    expect("yarn", {{"factor", 4.0f}, {"yarn_log_multiplier", 0.1f}}, ErrorKind::unsupported,
           "yarn_log_multiplier");
}

TEST_F(RopeModel, SettingsDecideOverTheFile) {
    ModelFacts plain;
    plain.trained_context = 262144;
    plain.rope_base = 1e7;
    ModelFacts stretched = plain;
    stretched.rope = yarn(4, 32768);
    const auto text = [](const ModelFacts& model,
                         std::initializer_list<std::pair<const char*, const char*>> values,
                         uint32_t context) {
        const auto rope = resolve_rope(model, settings(values), context);
        return rope ? rope->text() : rope.error().message();
    };
    EXPECT_EQ(text(plain, {}, 524288), "as trained");
    EXPECT_EQ(text(plain, {{"rope-scaling", "yarn"}}, 524288), "stretched by 2 with YaRN");
    EXPECT_EQ(text(plain, {{"rope-scaling", "yarn"}}, 262145), "stretched by 2 with YaRN");
    EXPECT_EQ(text(plain, {{"rope-scaling", "yarn"}}, 32768), "as trained");
    EXPECT_EQ(text(plain, {{"rope-scaling", "linear"}, {"rope-factor", "1.5"}}, 32768),
              "stretched by 1.5 linearly");
    EXPECT_EQ(text(stretched, {}, 1000), "stretched by 4 with YaRN");
    EXPECT_EQ(text(stretched, {{"rope-factor", "2"}}, 1000), "stretched by 2 with YaRN");
    EXPECT_EQ(text(stretched, {{"rope-factor", "1"}}, 1000), "as trained");
    EXPECT_EQ(text(stretched, {{"rope-scaling", "none"}}, 1000), "as trained");
    EXPECT_EQ(text(stretched, {{"rope-scaling", "linear"}}, 1000), "stretched by 4 linearly");
    // A factor that nothing uses is not passed over.
    EXPECT_NE(text(plain, {{"rope-factor", "2"}}, 1000).find("does not stretch"),
              std::string::npos);
    EXPECT_NE(text(stretched, {{"rope-scaling", "none"}, {"rope-factor", "2"}}, 1000)
                  .find("rope-scaling is none"),
              std::string::npos);
    plain.rope_base = 1;
    EXPECT_NE(text(plain, {{"rope-scaling", "yarn"}}, 524288).find("rope.freq_base is 1"),
              std::string::npos);
}

TEST_F(RopeModel, TheNoteSaysHowFarAModelReaches) {
    RopeScaling trained;
    trained.original = 262144;
    EXPECT_EQ(context_note(trained, 262144), "");
    EXPECT_EQ(context_note(trained, 524288),
              "max-context 524,288 is past the 262,144 tokens that the model was trained for: "
              "answers there may be poor; rope-scaling yarn may help");
    EXPECT_EQ(context_note(yarn(2, 262144), 524288),
              "positions are stretched by 2 with YaRN: the 262,144 tokens that the model was "
              "trained for reach to 524,288");
    EXPECT_EQ(context_note(yarn(1.5, 262144), 524288),
              "positions are stretched by 1.5 with YaRN: the 262,144 tokens that the model was "
              "trained for reach to 393,216, max-context is 524,288");
}

TEST_F(RopeModel, ChunksDoNotChangeWhatAStretchedModelSays) {
    const std::string path = file("", {});
    const auto with = [&](const char* kind, const char* prefill, const char* budget) {
        return logits(path, settings({{"max-context", "1024"},
                                      {"rope-scaling", kind},
                                      {"prefill", prefill},
                                      {"vram-budget", budget}}));
    };
    const std::vector<float> one = with("yarn", "1024", "0");
    ASSERT_FALSE(one.empty());
    EXPECT_EQ(with("yarn", "64", "0"), one);
    EXPECT_EQ(with("yarn", "192", "16MiB"), one);
    const std::vector<float> plain = with("none", "1024", "0"), linear = with("linear", "64", "0");
    EXPECT_GT(relative_l2(one, plain), 1e-3);
    EXPECT_GT(relative_l2(one, linear), 1e-3);
    EXPECT_EQ(with("linear", "1024", "0"), linear);
}

// Without its blend and its magnitude YaRN is linear scaling: keys of the file reach the kernels.
TEST_F(RopeModel, YarnWithoutBlendIsLinear) {
    const auto magnitude = static_cast<float>(1 / (1 + 0.1 * std::log(4.0)));
    const Settings wide = settings({{"max-context", "1024"}});
    const auto linear = logits(file("linear", {{"factor", 4.0f}}), wide);
    const auto without = logits(
        file("yarn", {{"factor", 4.0f}, {"yarn_ext_factor", 0.0f}, {"attn_factor", magnitude}}),
        wide);
    const auto with = logits(file("yarn", {{"factor", 4.0f}}), wide);
    EXPECT_LT(relative_l2(without, linear), 1e-5);
    EXPECT_GT(relative_l2(with, linear), 1e-3);
}

TEST_F(RopeModel, TheLogSaysItOnce) {
    const auto lines = [&](const std::string& path, const Settings& settings) {
        std::vector<std::string> found;
        EngineOptions options;
        options.settings = settings;
        options.log = [&](LogLevel, std::string_view line) {
            if (line.find("trained for") != std::string_view::npos) found.emplace_back(line);
        };
        auto engine = Engine::open(path, options);
        EXPECT_TRUE(engine) << engine.error().message();
        Request request;
        request.use_raw = true;
        request.raw = std::string(300, 'a');
        request.max_tokens = 2;
        const ConversationId id = *(*engine)->create_conversation();
        EXPECT_TRUE((*engine)->answer(id, request, {}, {}));
        return found;
    };
    const std::string path = file("", {});
    EXPECT_TRUE(
        lines(path,
              settings({{"max-context", "512"}, {"rope-scaling", "yarn"}, {"rope-factor", "1"}}))
            .size() == 1);
    const auto past = lines(path, settings({{"max-context", "512"}}));
    ASSERT_EQ(past.size(), 1u);
    EXPECT_NE(past[0].find("max-context 512 is past the 256 tokens"), std::string::npos);
    const auto stretched =
        lines(path, settings({{"max-context", "512"}, {"rope-scaling", "yarn"}}));
    ASSERT_EQ(stretched.size(), 1u);
    EXPECT_NE(stretched[0].find("stretched by 2 with YaRN"), std::string::npos);
}

}  // namespace
}  // namespace granary::test

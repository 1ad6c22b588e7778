// SPDX-License-Identifier: GPL-3.0-or-later
// Model files at the edge of what is sound, and beyond: unusual shapes run on both faces with the
// same tokens; what is wrong is refused by name; no number in a file makes the engine crash.
#include <gtest/gtest.h>

#include "granary/engine.h"
#include "tests/engine/small_hybrid.h"
#include "tests/engine/small_model.h"
#include "tests/host_settings.h"

namespace granary::test {
namespace {

Settings small_context(const char* budget) {
    Settings settings = host_settings();
    EXPECT_TRUE(settings.set("max-context", "1024"));
    EXPECT_TRUE(settings.set("vram-budget", budget));
    EXPECT_TRUE(settings.set("threads", "1"));
    return settings;
}

struct Spoken {
    std::vector<TokenId> greedy;
    std::vector<float> logits;
};

// Reads 80 tokens in two chunks, then decodes a few.
Result<Spoken> speak(const std::string& path, const Settings& settings,
                     gpu::Arithmetic arithmetic = gpu::Arithmetic::fast) {
    EngineOptions options;
    options.settings = settings;
    options.arithmetic = arithmetic;
    auto engine = Engine::open(path, options);
    if (!engine) return tl::unexpected(engine.error());
    LogitsRequest request;
    std::mt19937 random(7);
    for (int i = 0; i < 80; ++i)
        request.tokens.push_back(static_cast<TokenId>(random() % (*engine)->model().vocab));
    request.positions = {79};
    request.greedy = 6;
    auto result = (*engine)->logits(request);
    if (!result) return tl::unexpected(result.error());
    uint64_t sum = 0;
    for (uint64_t bytes : (*engine)->bytes()) sum += bytes;
    EXPECT_EQ(sum, (*engine)->plan().budget_bytes);
    EXPECT_EQ((*engine)->driver_allocations_after_load(), 0u);
    return Spoken{result->greedy, result->logits[0]};
}

class HostileModel : public ::testing::Test {
  protected:
    std::string save(const SmallModel& model) { return model.save(folder_, "model.gguf"); }
    Error refusal(const SmallModel& model) {
        auto engine = Engine::open(save(model), {});
        if (engine) {
            ADD_FAILURE() << "was opened";
            return {};
        }
        EXPECT_NE(engine.error().message(), "");
        return engine.error();
    }
    TempDir folder_;
};

using Type = gpu::WeightType;

TEST_F(HostileModel, UnusualShapesSayTheSameOnBothFaces) {
    std::map<std::string, SmallModel> shapes;
    shapes["one layer"].layers = 1;
    shapes["one expert"].experts = shapes["one expert"].used = 1;
    shapes["one of one"].experts = 1, shapes["one of one"].used = 1;
    shapes["all experts"].used = 8;
    shapes["64 used"].experts = shapes["64 used"].used = 64;
    shapes["head of 8"].head_dim = 8;
    shapes["head of 24"].head_dim = 24;
    shapes["head of 72"].head_dim = 72;
    shapes["head of 256"].head_dim = 256;
    shapes["as many K/V heads"].kv_heads = 4;
    shapes["one K/V head"].kv_heads = 1;
    shapes["70 heads on one"].heads = 70, shapes["70 heads on one"].kv_heads = 1;
    shapes["partly rotated"].rope_dims = 6;
    shapes["pairs of one"].rope_dims = 2;
    shapes["ffn of 32"].ffn = 32;
    shapes["ffn of 8"].ffn = 8;
    shapes["hidden of 8"].hidden = 8;
    shapes["hidden of 12"].hidden = 12, shapes["hidden of 12"].ffn = 20;
    shapes["hidden of 32"].hidden = 32;
    SmallModel& wide = shapes["32-wide types"];
    wide.hidden = 96, wide.ffn = 160, wide.dense = Type::q4_0, wide.gate_up = Type::q8_0;
    wide.down = Type::q5_0, wide.router = Type::q8_0;
    SmallModel& mixed = shapes["mixed types"];
    mixed.hidden = 32, mixed.gate_up = Type::q4_0, mixed.down = Type::f16;
    mixed.dense = Type::bf16;
    shapes["f16 router"].router = Type::f16;
    shapes["bf16 router"].router = Type::bf16;
    shapes["tied"].tied = true;
    shapes["more rows than tokens"].rows = 300;
    shapes["one token context"].context = 1;
    shapes["4096 experts"].experts = 4096, shapes["4096 experts"].layers = 1;
    shapes["4096 experts"].hidden = 16, shapes["4096 experts"].ffn = 8;
    for (const auto& [name, model] : shapes) {
        SCOPED_TRACE(name);
        const std::string path = save(model);
        auto unified = speak(path, small_context("0"));
        ASSERT_TRUE(unified) << unified.error().message();
        for (float logit : unified->logits) ASSERT_TRUE(std::isfinite(logit));
        for (const char* budget : {"9MiB", "64MiB"}) {
            auto card = speak(path, small_context(budget));
            if (!card && card.error().kind == ErrorKind::refused &&
                std::string_view(budget) == "9MiB")
                continue;
            ASSERT_TRUE(card) << card.error().message();
            EXPECT_EQ(card->greedy, unified->greedy) << budget;
            EXPECT_EQ(card->logits, unified->logits) << budget;
        }
        auto exact = speak(path, small_context("0"), gpu::Arithmetic::f32);
        ASSERT_TRUE(exact) << exact.error().message();
        double difference = 0, size = 0;
        for (size_t i = 0; i < exact->logits.size(); ++i) {
            difference += std::pow(exact->logits[i] - unified->logits[i], 2);
            size += std::pow(exact->logits[i], 2);
        }
        EXPECT_LT(std::sqrt(difference / size), 0.2);
    }
}

TEST_F(HostileModel, NamesTheKeyThatIsMissing) {
    for (const char* key :
         {"general.architecture", "qwen3moe.block_count", "qwen3moe.context_length",
          "qwen3moe.embedding_length", "qwen3moe.attention.head_count", "qwen3moe.expert_count",
          "qwen3moe.expert_used_count", "qwen3moe.expert_feed_forward_length",
          "qwen3moe.attention.layer_norm_rms_epsilon", "tokenizer.ggml.model", "tokenizer.ggml.pre",
          "tokenizer.ggml.tokens", "tokenizer.ggml.merges"}) {
        SmallModel model;
        model.without = {key};
        const Error error = refusal(model);
        EXPECT_NE(error.message().find(key), std::string::npos) << key << ": " << error.message();
    }
    // These have values that follow from others.
    for (const char* key : {"qwen3moe.attention.head_count_kv", "qwen3moe.attention.key_length",
                            "qwen3moe.rope.freq_base", "tokenizer.ggml.token_type"}) {
        SmallModel model;
        model.without = {key};
        model.kv_heads = model.heads;
        EXPECT_TRUE(Engine::open(save(model), {})) << key;
    }
    SmallModel mute;
    mute.without = {"tokenizer.chat_template"};
    auto engine = Engine::open(save(mute), {});
    ASSERT_TRUE(engine);
    EXPECT_FALSE((*engine)->has_chat_template());
    Request request;
    request.messages = {{"user", "hello"}};
    auto answer = (*engine)->answer(*(*engine)->create_conversation(), request, {}, {});
    ASSERT_FALSE(answer);
    EXPECT_NE(answer.error().message().find("template"), std::string::npos);
}

TEST_F(HostileModel, NamesTheTensorThatIsMissingOrMisshapen) {
    std::vector<std::string> names{"token_embd.weight", "output_norm.weight"};
    for (const char* part :
         {"attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "attn_q_norm", "attn_k_norm",
          "ffn_norm", "ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"})
        names.push_back("blk.1." + std::string(part) + ".weight");
    for (const std::string& name : names) {
        SmallModel model;
        model.without = {name};
        EXPECT_NE(refusal(model).message().find(name), std::string::npos)
            << name << ": " << refusal(model).message();
    }
    names.push_back("output.weight");
    for (const std::string& name : names) {
        if (name == "token_embd.weight") continue;  // its rows are the vocabulary
        for (const std::vector<uint64_t>& shape : {std::vector<uint64_t>{},
                                                   {1},
                                                   {32},
                                                   {64, 1},
                                                   {64, 64},
                                                   {64, 64, 8},
                                                   {32, 32, 32, 2}}) {
            SmallModel model;
            model.hidden = 40;  // none of these fits anywhere
            model.shapes[name] = shape;
            const std::string message = refusal(model).message();
            EXPECT_NE(message.find(name), std::string::npos) << name << ": " << message;
        }
    }
}

TEST_F(HostileModel, RefusesNumbersThatCannotBe) {
    const auto refuse = [&](const std::string& key, const std::function<void(GgufBuilder&)>& put) {
        SmallModel model;
        model.without = {key};
        model.more = put;
        const std::string message = refusal(model).message();
        EXPECT_NE(message.find(key), std::string::npos) << message;
    };
    for (const char* name :
         {"block_count", "context_length", "embedding_length", "attention.head_count",
          "attention.head_count_kv", "expert_count", "expert_used_count",
          "expert_feed_forward_length", "attention.key_length", "attention.value_length"}) {
        const std::string key = std::string("qwen3moe.") + name;
        for (uint64_t value : {uint64_t{0}, uint64_t{1} << 31, uint64_t{1} << 40, UINT64_MAX})
            refuse(key, [&](GgufBuilder& file) { file.put(key, value); });
        refuse(key, [&](GgufBuilder& file) { file.put(key, int32_t{-1}); });
        refuse(key, [&](GgufBuilder& file) { file.put(key, std::string("4")); });
        refuse(key, [&](GgufBuilder& file) { file.put_array(key, std::vector<uint32_t>{4, 4}); });
    }
    const double nan = std::nan(""), infinity = HUGE_VAL;
    for (const char* name : {"rope.freq_base", "attention.layer_norm_rms_epsilon"}) {
        const std::string key = std::string("qwen3moe.") + name;
        for (double value : {0.0, -1.0, nan, infinity, -infinity, 1e300, 1e-300, -1e-300})
            refuse(key, [&](GgufBuilder& file) { file.put(key, value); });
        refuse(key, [&](GgufBuilder& file) { file.put(key, std::string("big")); });
    }
    for (double value : {0.0, -2.0, nan, infinity, 1e300, 1e-300})
        refuse("qwen3moe.rope.scaling.factor", [&](GgufBuilder& file) {
            file.put("qwen3moe.rope.scaling.type", std::string("linear"));
            file.put("qwen3moe.rope.scaling.factor", value);
        });
    for (const char* type : {"linear", "yarn"})  // without its factor
        refuse("qwen3moe.rope.scaling.factor", [&](GgufBuilder& file) {
            file.put("qwen3moe.rope.scaling.type", std::string(type));
        });
    for (uint32_t dims : {0u, 1u, 3u, 18u, 1024u, UINT32_MAX}) {
        SmallModel model;
        model.more = [&](GgufBuilder& file) { file.put("qwen3moe.rope.dimension_count", dims); };
        EXPECT_NE(refusal(model).message(), "") << dims;
    }
    // Heads that the K/V heads do not divide; a head size that follows from nothing.
    SmallModel odd;
    odd.kv_heads = 3;
    EXPECT_EQ(refusal(odd).kind, ErrorKind::unsupported);
    SmallModel none;
    none.heads = 128;
    none.kv_heads = 1;
    none.without = {"qwen3moe.attention.key_length", "qwen3moe.attention.value_length"};
    EXPECT_NE(refusal(none).message().find("key_length"), std::string::npos)
        << refusal(none).message();
}

TEST_F(HostileModel, RefusesWhatItWouldGetWrong) {
    SmallModel norms;
    norms.norms = Type::f16;
    EXPECT_EQ(refusal(norms).kind, ErrorKind::unsupported);
    // Tensors that change the result and that no code here reads.
    for (const char* name :
         {"blk.0.attn_q.bias", "blk.1.ffn_up_shexp.weight", "output.bias", "blk.0.exp_probs_b.bias",
          "rope_freqs.weight", "blk.0.ffn_down_exps.scale", "blk.2.attn_q.weight"}) {
        SmallModel model;
        model.more = [&](GgufBuilder& file) {
            file.tensor(name, {64}, std::vector<float>(64, 1.0f));
        };
        const Error error = refusal(model);
        EXPECT_NE(error.message().find(name), std::string::npos) << error.message();
        EXPECT_EQ(error.kind, ErrorKind::unsupported);
    }
    SmallModel fused;
    fused.without = {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight"};
    fused.more = [](GgufBuilder& file) {
        file.tensor("blk.0.ffn_gate_up_exps.weight", {64, 64, 8},
                    std::vector<float>(64 * 64 * 8, 0.1f));
    };
    EXPECT_NE(refusal(fused).message().find("ffn_gate_up_exps"), std::string::npos)
        << refusal(fused).message();
    SmallModel few;
    few.rows = 200;  // the vocabulary has 259 tokens
    EXPECT_NE(refusal(few).message().find("259"), std::string::npos);
}

TEST_F(HostileModel, WhatAFileSaysIsSafeToShow) {
    SmallModel model;
    model.without = {"general.architecture"};
    model.more = [](GgufBuilder& file) {
        file.put("general.architecture", std::string("evil\x1b[2J\r\n\xe2\x80\xae\xff"));
    };
    for (char c : refusal(model).message()) EXPECT_GE(static_cast<unsigned char>(c), 0x20);
    SmallModel scaled;
    scaled.more = [](GgufBuilder& file) {
        file.put("qwen3moe.rope.scaling.type", std::string("evil\x1b[2J\r\n"));
    };
    for (char c : refusal(scaled).message()) EXPECT_GE(static_cast<unsigned char>(c), 0x20);
}

TEST_F(HostileModel, UnusualHybridsSayTheSameOnBothFaces) {
    std::map<std::string, SmallHybrid> shapes;
    shapes["no attention at all"].layers = 3;
    shapes["one delta net"].layers = 1;
    shapes["one head"].key_heads = shapes["one head"].value_heads = 1;
    shapes["as many key heads"].key_heads = 4;
    shapes["wide state"].delta_dim = 64;
    shapes["two taps"].taps = 2, shapes["eight taps"].taps = 8;
    shapes["narrow"].hidden = 8, shapes["narrow"].ffn = 8, shapes["narrow"].shared_ffn = 8;
    shapes["large shared expert"].shared_ffn = 512;
    shapes["one expert"].experts = shapes["one expert"].used = 1;
    for (const auto& [name, model] : shapes) {
        SCOPED_TRACE(name);
        const std::string path = model.save(folder_, "hybrid.gguf");
        auto unified = speak(path, small_context("0"));
        ASSERT_TRUE(unified) << unified.error().message();
        for (float logit : unified->logits) ASSERT_TRUE(std::isfinite(logit));
        auto card = speak(path, small_context("64MiB"));
        ASSERT_TRUE(card) << card.error().message();
        EXPECT_EQ(card->greedy, unified->greedy);
        EXPECT_EQ(card->logits, unified->logits);
        EXPECT_FALSE(speak(path, small_context("64KiB")));
    }
}

// Not-a-number, infinities and noise in any tensor: every request ends, with tokens of the
// vocabulary and sums that add up.
TEST_F(HostileModel, DamagedWeightsNeverCrash) {
    const auto fill = [](const std::string& pattern) {
        return [pattern](std::string& bytes) {
            for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern[i % pattern.size()];
        };
    };
    const auto noise = [](std::string& bytes) {
        std::mt19937 random(3);
        for (char& byte : bytes) byte = static_cast<char>(random() >> 16);
    };
    const std::string nan = raw(std::nanf("")), infinity = raw(HUGE_VALF);
    for (const char* part : {"token_embd", "output.", "output_norm", "attn_norm", "attn_q.",
                             "attn_k.", "attn_v", "attn_output", "attn_q_norm", "ffn_norm",
                             "ffn_gate_inp", "ffn_gate_exps", "ffn_down", ""}) {
        int number = 0;
        for (const std::function<void(std::string&)>& damage :
             {std::function<void(std::string&)>(fill(nan)),
              std::function<void(std::string&)>(fill(infinity)),
              std::function<void(std::string&)>(fill(raw(0.0f) + raw(-3e38f) + nan)),
              std::function<void(std::string&)>(fill("\xff")),
              std::function<void(std::string&)>(noise)}) {
            SCOPED_TRACE(std::string(part) + " " + std::to_string(number));
            SmallModel model;
            model.layers = 1;
            if (number++ % 2) {
                model.dense = model.gate_up = model.router = Type::q8_0;
                model.down = Type::q4_0;
            }
            model.spoil = [&](const std::string& name, std::string& bytes) {
                if (name.find(part) != std::string::npos) damage(bytes);
            };
            const std::string path = save(model);
            for (const char* budget : {"0", "9MiB"}) {
                auto spoken = speak(path, small_context(budget));
                ASSERT_TRUE(spoken) << spoken.error().message();
                for (TokenId token : spoken->greedy) {
                    EXPECT_GE(token, 0);
                    EXPECT_LT(token, 259);
                }
            }
        }
    }
    for (const char* part : {"ssm_a", "ssm_dt", "ssm_conv1d", "ssm_alpha", "ssm_beta", "ssm_norm",
                             "attn_qkv", "attn_gate", "attn_q.", "shexp", "gate_inp", ""}) {
        for (const std::function<void(std::string&)>& damage :
             {std::function<void(std::string&)>(fill(nan)),
              std::function<void(std::string&)>(fill(raw(0.0f) + infinity + raw(-3e38f))),
              std::function<void(std::string&)>(noise)}) {
            SCOPED_TRACE(part);
            SmallHybrid model;
            model.spoil = [&](const std::string& name, std::string& bytes) {
                if (name.find(part) != std::string::npos) damage(bytes);
            };
            auto spoken = speak(model.save(folder_, "hybrid.gguf"), small_context("9MiB"));
            ASSERT_TRUE(spoken) << spoken.error().message();
            for (TokenId token : spoken->greedy) EXPECT_LT(static_cast<uint32_t>(token), 259u);
        }
    }
    // Samplers too.
    SmallModel model;
    model.spoil = [&](const std::string&, std::string& bytes) { noise(bytes); };
    auto engine = Engine::open(save(model), {small_context("0"), {}, {}, 0, {}});
    ASSERT_TRUE(engine);
    Request request;
    request.messages = {{"user", "hello"}};
    request.max_tokens = 8;
    request.sampling = {1.0f, 40, 0.9f, 0.1f, 1.2f, 64, 1};
    EXPECT_TRUE((*engine)->answer(*(*engine)->create_conversation(), request, {}, {}));
}

}  // namespace
}  // namespace granary::test

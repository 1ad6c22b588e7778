// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cli/inspect.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/gguf/gguf_builder.h"

namespace granary {
namespace {

struct Printed {
    int code;
    std::string out;
    std::string err;
};

Printed run(const std::string& path, bool json) {
    std::ostringstream out;
    std::ostringstream err;
    const int code = cli::inspect(path, json, out, err);
    return {code, out.str(), err.str()};
}

const std::string starter = GRANARY_RESOURCES "/starter/starter-q4_k_m.gguf";
const std::string micro = GRANARY_TEST_DATA "/micro/micro-qwen3moe.gguf";

// Printable ASCII, UTF-8 and line ends.
bool safe_for_a_terminal(const std::string& text) {
    for (size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        if ((byte < 0x20 && byte != '\n') || byte == 0x7f) return false;
        if (byte == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0) return false;
    }
    return text.find("\xe2\x80\xae") == std::string::npos;
}

TEST(Inspect, CountsTheStartersBytes) {
    const Printed got = run(starter, true);
    ASSERT_EQ(got.code, 0) << got.err;
    EXPECT_TRUE(got.err.empty());
    const auto json = nlohmann::json::parse(got.out);
    EXPECT_EQ(json.at("version"), 3);
    EXPECT_EQ(json.at("parts"), 1);
    EXPECT_EQ(json.at("metadata").at("qwen3moe.expert_count"), 20);
    const auto& tokens = json.at("metadata").at("tokenizer.ggml.tokens");
    EXPECT_EQ(tokens.at("count"), 8192);
    EXPECT_EQ(tokens.at("values").size(), 64u);
    const auto& sum = json.at("summary");
    EXPECT_EQ(sum.at("experts"), 20);
    EXPECT_EQ(sum.at("expert_layers"), 8);
    // Gate and up: 512 x 256 weights in Q4_K; down in Q6_K or Q4_K by layer.
    const uint64_t gate_up = 2 * 512 * 256 / 256 * 144;
    EXPECT_EQ(sum.at("bytes_per_expert").at("least"), gate_up + 512 * 256 / 256 * 144);
    EXPECT_EQ(sum.at("bytes_per_expert").at("most"), gate_up + 512 * 256 / 256 * 210);
    // 8 layers, 2 heads of 64, K and V, 2 bytes.
    EXPECT_EQ(sum.at("kv_bytes_per_token_f16"), 8 * 2 * 64 * 2 * 2);
    EXPECT_EQ(sum.at("host_bytes"), 0) << "the embedding is the output too";
    EXPECT_EQ(sum.at("fixed_bytes").get<uint64_t>() + sum.at("expert_bytes").get<uint64_t>(),
              sum.at("tensor_bytes").get<uint64_t>());
    uint64_t bytes = 0;
    uint64_t tensors = 0;
    for (const auto& type : sum.at("types")) {
        bytes += type.at("bytes").get<uint64_t>();
        tensors += type.at("tensors").get<uint64_t>();
    }
    EXPECT_EQ(bytes, sum.at("tensor_bytes").get<uint64_t>());
    EXPECT_EQ(tensors, json.at("tensors").size());
}

TEST(Inspect, KeepsAnUntiedEmbeddingOnTheHost) {
    const auto json = nlohmann::json::parse(run(micro, true).out);
    const auto& sum = json.at("summary");
    EXPECT_EQ(sum.at("host_bytes"), 320 * 64 * 4);
    EXPECT_EQ(sum.at("bytes_per_expert").at("least"), 3 * 64 * 32 * 4);
    EXPECT_EQ(sum.at("bytes_per_expert").at("most"), 3 * 64 * 32 * 4);
    EXPECT_EQ(sum.at("expert_bytes"), 4 * 8 * 3 * 64 * 32 * 4);
    EXPECT_EQ(sum.at("tensor_bytes").get<uint64_t>(), sum.at("fixed_bytes").get<uint64_t>() +
                                                          sum.at("host_bytes").get<uint64_t>() +
                                                          sum.at("expert_bytes").get<uint64_t>());
}

TEST(Inspect, PrintsATable) {
    const Printed got = run(micro, false);
    ASSERT_EQ(got.code, 0) << got.err;
    for (const char* const words :
         {"GGUF version 3", "general.architecture", "\"qwen3moe\"", "320 string: [\"", ", ...]",
          "blk.3.ffn_down_exps.weight", "32 x 64 x 8", "in 4 layers of 8", "one expert",
          "24 KiB (24576)", "K/V a token, f16"}) {
        EXPECT_NE(got.out.find(words), std::string::npos) << words << "\n" << got.out;
    }
    EXPECT_TRUE(safe_for_a_terminal(got.out));
}

TEST(Inspect, TakesFilesOfAnyFamilyAndWithoutWeights) {
    const test::TempDir dir;
    test::GgufBuilder builder;
    builder.put("general.architecture", "strange")
        .put("strange.block_count", 2u)
        .put("strange.nextn_predict_layers", 1u)
        .put("strange.attention.sliding_window", 16u)
        .put("x.nan", std::numeric_limits<double>::quiet_NaN())
        .tensor("blk.0.attn_k.weight", {1, 3}, {1, 2, 3})
        .tensor("blk.1.attn_k.weight", {1, 3}, {1, 2, 3})
        .tensor("blk.x.attn_k.weight", {1, 3}, {1, 2, 3})
        .tensor("blk.99999999999999999999.attn_k.weight", {1, 3}, {1, 2, 3});
    builder.save(dir.file("a.gguf"));
    const auto json = nlohmann::json::parse(run(dir.file("a.gguf"), true).out);
    EXPECT_EQ(json.at("summary").at("kv_bytes_per_token_f16"), 6) << "the trunk's layer only";
    EXPECT_EQ(json.at("summary").at("kv_windowed"), true);
    EXPECT_TRUE(json.at("metadata").at("x.nan").is_null());
    EXPECT_NE(run(dir.file("a.gguf"), false).out.find("counted in full"), std::string::npos);

    test::GgufBuilder().put("general.architecture", "x").save(dir.file("empty.gguf"));
    const auto empty = nlohmann::json::parse(run(dir.file("empty.gguf"), true).out);
    EXPECT_TRUE(empty.at("tensors").empty());
    EXPECT_TRUE(empty.at("summary").at("kv_bytes_per_token_f16").is_null());
    EXPECT_EQ(run(dir.file("empty.gguf"), false).code, 0);
}

TEST(Inspect, LetsNoFileReachTheTerminal) {
    const test::TempDir dir;
    const std::string evil =
        "\x1b]0;owned\a\x1b[2J\xc2\x9b"
        "31m\xe2\x80\xae\x7f\xff\r\b";
    test::GgufBuilder builder;
    builder.put("general.architecture", evil)
        .put(evil, evil)
        .put_array<std::string>("list", {evil, evil})
        .put("long", std::string(1000000, 'x') + evil)
        .tensor(evil, {1}, {1});
    const std::string path = dir.file("\x1b[31m.gguf");
    builder.save(path);
    for (const bool json : {false, true}) {
        const Printed got = run(path, json);
        EXPECT_EQ(got.code, 0) << got.err;
        EXPECT_TRUE(safe_for_a_terminal(got.out)) << "json " << json;
        EXPECT_LT(got.out.size(), 100000u);
        EXPECT_EQ(nlohmann::json::accept(got.out), json);
    }
    builder.tensor_raw(evil, 137, {1}, 0).save(path);
    const Printed refused = run(path, false);
    EXPECT_EQ(refused.code, 2);
    EXPECT_TRUE(refused.out.empty());
    EXPECT_TRUE(safe_for_a_terminal(refused.err)) << refused.err;
    EXPECT_NE(refused.err.find("\\u{1b}]0;owned"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace granary

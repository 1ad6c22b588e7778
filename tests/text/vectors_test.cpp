// SPDX-License-Identifier: GPL-3.0-or-later
// Texts and the token ids that llama.cpp gives for them.
#include <filesystem>
#include <sstream>

#include "tests/text/vocabulary_builder.h"

namespace granary::test {
namespace {

struct Vector {
    std::string text;
    std::vector<TokenId> ids;
};

std::vector<Vector> vectors(const std::string& stem) {
    const std::string separator = "\n__ggml_vocab_test__\n";
    const std::string texts = read_file(stem + ".inp");
    std::istringstream lines(read_file(stem + ".out"));
    std::vector<Vector> result;
    for (size_t at = 0; at <= texts.size();) {
        const size_t end = std::min(texts.find(separator, at), texts.size());
        Vector vector{texts.substr(at, end - at), {}};
        std::string line;
        std::getline(lines, line);
        std::istringstream ids(line);
        for (TokenId id; ids >> id;) vector.ids.push_back(id);
        result.push_back(std::move(vector));
        at = end + separator.size();
    }
    std::string rest;
    EXPECT_FALSE(std::getline(lines, rest) && !rest.empty()) << stem << " has more ids than texts";
    return result;
}

void expect_vectors(const Tokenizer& tokenizer, const std::string& stem, size_t count) {
    const auto all = vectors(stem);
    EXPECT_EQ(all.size(), count);
    for (const Vector& vector : all) {
        EXPECT_EQ(tokenizer.encode(vector.text, false), vector.ids) << vector.text;
    }
}

void expect_stored(const char* vocabulary, const char* name, size_t count) {
    const auto tokenizer = stored_vocabulary(vocabulary, name).make();
    ASSERT_TRUE(tokenizer) << tokenizer.error().message();
    expect_vectors(**tokenizer, std::string(GRANARY_TEST_DATA "/tokenizer/") + name, count);
    for (const Vector& vector : vectors(std::string(GRANARY_TEST_DATA "/tokenizer/") + name)) {
        EXPECT_EQ(joined(**tokenizer, vector.ids), vector.text);
    }
}

TEST(TokenizerVectors, Qwen2) {
    expect_stored("qwen2", "qwen2", 47);
}
TEST(TokenizerVectors, Qwen35) {
    expect_stored("qwen2", "qwen35", 51);
}
TEST(TokenizerVectors, Gpt2) {
    expect_stored("gpt-2", "gpt-2", 47);
}

// Vocabularies that may not be copied: read where the folder with other engines' numbers is.
std::string shared(const std::string& name) {
    const std::string path = GRANARY_SHARED "/fixtures/tokenizer/ggml-vocab-" + name + ".gguf";
    return std::filesystem::exists(path) ? path : std::string();
}

TEST(TokenizerVectors, LlamaBpe) {
    const std::string path = shared("llama-bpe");
    if (path.empty()) GTEST_SKIP() << "skipped: vocabulary not redistributable";
    const auto tokenizer = tokenizer_of(path);
    ASSERT_NE(tokenizer, nullptr);
    expect_vectors(*tokenizer, path, 47);
    EXPECT_TRUE(tokenizer->adds_bos());
    EXPECT_EQ(tokenizer->encode("", true), std::vector<TokenId>{128000});
    EXPECT_TRUE(tokenizer->ends_answer(128001));   // <|end_of_text|>, by its id
    EXPECT_TRUE(tokenizer->ends_answer(128009));   // <|eot_id|>, by its name
    EXPECT_FALSE(tokenizer->ends_answer(128000));  // <|begin_of_text|>
}

TEST(TokenizerVectors, LlamaSpm) {
    const std::string path = shared("llama-spm");
    if (path.empty()) GTEST_SKIP() << "skipped: vocabulary not redistributable";
    const auto tokenizer = tokenizer_of(path);
    ASSERT_NE(tokenizer, nullptr);
    expect_vectors(*tokenizer, path, 47);
    for (const Vector& vector : vectors(path)) {
        const std::string prefix = vector.text.empty() ? "" : " ";
        EXPECT_EQ(joined(*tokenizer, vector.ids), prefix + vector.text);
    }
    EXPECT_TRUE(tokenizer->adds_bos());
    EXPECT_EQ(tokenizer->encode("<s>", true), std::vector<TokenId>{1});  // one BOS, not two
    EXPECT_EQ(tokenizer->piece(13), "\n");                               // a byte token
}

}  // namespace
}  // namespace granary::test

// SPDX-License-Identifier: GPL-3.0-or-later
// Files whose vocabulary this program cannot use: each says what is wrong, with its numbers.
#include <cmath>

#include "tests/text/vocabulary_builder.h"

namespace granary::test {
namespace {

void expect_refused(const TestVocabulary& vocabulary, ErrorKind kind,
                    const std::vector<std::string>& parts) {
    const auto tokenizer = vocabulary.make();
    ASSERT_FALSE(tokenizer);
    EXPECT_EQ(tokenizer.error().kind, kind);
    for (const std::string& part : parts) {
        EXPECT_NE(tokenizer.error().message().find(part), std::string::npos)
            << part << " is not in: " << tokenizer.error().message();
    }
}

TestVocabulary scored_vocabulary() {
    TestVocabulary vocabulary;
    vocabulary.model = "llama";
    vocabulary.add("<unk>", 2);
    vocabulary.add("a");
    vocabulary.more.put("tokenizer.ggml.unknown_token_id", uint32_t{0});
    return vocabulary;
}

TEST(Vocabulary, UnsupportedModelsAndPreTokenisersAreNamed) {
    TestVocabulary vocabulary = byte_vocabulary();
    vocabulary.pre = "glm4";
    expect_refused(vocabulary, ErrorKind::unsupported, {"glm4", "qwen2, qwen35, gpt-2, llama-bpe"});
    vocabulary.pre = "";
    expect_refused(vocabulary, ErrorKind::invalid_file, {"tokenizer.ggml.pre"});
    vocabulary.model = "t5";
    expect_refused(vocabulary, ErrorKind::unsupported, {"t5", "gpt2, llama"});
    vocabulary.model = std::string(100000, 'x');
    const auto tokenizer = vocabulary.make();
    ASSERT_FALSE(tokenizer);
    EXPECT_LT(tokenizer.error().message().size(), 1000u);
}

TEST(Vocabulary, MergesMustJoinTokens) {
    for (const char* merge : {"a xyz", "xyz a", "a b", "ab", "", "a ", " a", "a  b", "a b c"}) {
        TestVocabulary vocabulary = byte_vocabulary();
        vocabulary.merge("a", "c");
        vocabulary.merges.push_back(merge);
        expect_refused(vocabulary, ErrorKind::invalid_file, {"tokenizer.ggml.merges[1]"});
    }
}

TEST(Vocabulary, EachByteMustHaveAToken) {
    TestVocabulary vocabulary = byte_vocabulary();
    vocabulary.tokens['q'] = "another";
    expect_refused(vocabulary, ErrorKind::invalid_file, {"byte 113", "\"q\""});
}

TEST(Vocabulary, CountsMustAgree) {
    TestVocabulary vocabulary = byte_vocabulary();
    vocabulary.types.pop_back();
    expect_refused(vocabulary, ErrorKind::invalid_file, {"256 tokens", "255 entries"});
    vocabulary = scored_vocabulary();
    vocabulary.scores.push_back(1);
    expect_refused(vocabulary, ErrorKind::invalid_file, {"2 tokens", "3 entries"});
    vocabulary = TestVocabulary();
    expect_refused(vocabulary, ErrorKind::invalid_file, {"tokenizer.ggml.tokens has 0"});
}

TEST(Vocabulary, IdsMustBeInRange) {
    for (const char* key : {"bos", "eos", "eot", "eom", "unknown"}) {
        TestVocabulary vocabulary = byte_vocabulary();
        const std::string name = "tokenizer.ggml." + std::string(key) + "_token_id";
        vocabulary.more.put(name, uint32_t{256});
        expect_refused(vocabulary, ErrorKind::invalid_file, {name, "256"});
    }
    TestVocabulary vocabulary = byte_vocabulary();
    vocabulary.more.put("tokenizer.ggml.bos_token_id", int32_t{-1});
    expect_refused(vocabulary, ErrorKind::invalid_file, {"tokenizer.ggml.bos_token_id"});
    vocabulary = byte_vocabulary();
    vocabulary.more.put("tokenizer.ggml.add_bos_token", true);
    expect_refused(vocabulary, ErrorKind::invalid_file, {"add_bos_token", "bos_token_id"});
}

TEST(Vocabulary, TypesAndTextsAreChecked) {
    TestVocabulary vocabulary = byte_vocabulary();
    for (const int32_t type : {0, 7, -1}) {
        vocabulary.types[5] = type;
        expect_refused(vocabulary, ErrorKind::invalid_file, {"token_type[5]"});
    }
    vocabulary.types[5] = 1;
    vocabulary.add(std::string(1025, 'x'));
    expect_refused(vocabulary, ErrorKind::invalid_file, {"tokens[256]", "1025", "1024"});
}

TEST(Vocabulary, ScoresAndByteTokensAreChecked) {
    TestVocabulary vocabulary = scored_vocabulary();
    vocabulary.scores[1] = std::nanf("");
    expect_refused(vocabulary, ErrorKind::invalid_file, {"scores[1]"});
    for (const char* name : {"<0x0G>", "<0x0a>", "0x0A", "<0x0A", ""}) {
        vocabulary = scored_vocabulary();
        vocabulary.add(name, 6);
        expect_refused(vocabulary, ErrorKind::invalid_file, {"token 2"});
    }
    vocabulary = scored_vocabulary();
    vocabulary.more = GgufBuilder();  // no unknown token, no byte tokens
    expect_refused(vocabulary, ErrorKind::invalid_file, {"<0x00>"});
}

// Sound, if odd: equal texts, texts that are not UTF-8, letters outside the byte alphabet.
TEST(Vocabulary, OddTokensDoNoHarm) {
    TestVocabulary vocabulary = byte_vocabulary();
    vocabulary.add("a");
    const TokenId broken = vocabulary.add("\xFF\xC3");
    const TokenId outside = vocabulary.add("\u6f22 x");
    const auto tokenizer = vocabulary.make();
    ASSERT_TRUE(tokenizer) << tokenizer.error().message();
    EXPECT_EQ((*tokenizer)->encode("a", false), std::vector<TokenId>{'a'});
    EXPECT_EQ((*tokenizer)->piece(broken), "\xFF\xC3");
    EXPECT_EQ((*tokenizer)->piece(outside), "\u6f22 x");

    vocabulary = scored_vocabulary();
    vocabulary.add("a\xFF");
    vocabulary.add("aa", 1, INFINITY);
    vocabulary.add("aaa", 1, -INFINITY);
    vocabulary.add("a");
    const auto scored = vocabulary.make();
    ASSERT_TRUE(scored) << scored.error().message();
    EXPECT_EQ((*scored)->encode("aaaa", false), (std::vector<TokenId>{0, 3, 3}));
}

}  // namespace
}  // namespace granary::test

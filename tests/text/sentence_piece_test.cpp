// SPDX-License-Identifier: GPL-3.0-or-later
// SentencePiece on small vocabularies of our own.
#include <map>

#include "tests/text/reference_merge.h"
#include "tests/text/vocabulary_builder.h"

namespace granary::test {
namespace {

using Ids = std::vector<TokenId>;

constexpr int normal = 1;
constexpr int unknown = 2;
constexpr int control = 3;
constexpr int byte_type = 6;

// <unk> <s> </s>, then the 256 byte tokens: byte b is token 3 + b.
TestVocabulary base_vocabulary(bool bytes = true) {
    TestVocabulary vocabulary;
    vocabulary.model = "llama";
    vocabulary.pre = "default";
    vocabulary.add("<unk>", unknown);
    vocabulary.add("<s>", control);
    vocabulary.add("</s>", control);
    for (int byte = 0; bytes && byte < 256; ++byte) {
        char name[8];
        std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
        vocabulary.add(name, byte_type);
    }
    vocabulary.more.put("tokenizer.ggml.bos_token_id", uint32_t{1})
        .put("tokenizer.ggml.eos_token_id", uint32_t{2})
        .put("tokenizer.ggml.unknown_token_id", uint32_t{0});
    return vocabulary;
}

std::shared_ptr<const Tokenizer> made(const TestVocabulary& vocabulary) {
    const auto tokenizer = vocabulary.make();
    EXPECT_TRUE(tokenizer) << tokenizer.error().message();
    return tokenizer ? *tokenizer : nullptr;
}

TEST(SentencePiece, MergesTheBestScoreFirst) {
    TestVocabulary vocabulary = base_vocabulary();
    std::map<std::string, TokenId> id;
    const std::pair<const char*, float> tokens[] = {
        {"\u2581", -9}, {"h", -9},   {"e", -9},    {"l", -9},  {"o", -9},      {"he", -2},
        {"el", -1},     {"ell", -5}, {"ello", -4}, {"lo", -3}, {"\u2581h", 0}, {"hello", 9}};
    for (const auto& [text, score] : tokens) id[text] = vocabulary.add(text, normal, score);
    const auto tokenizer = made(vocabulary);
    ASSERT_NE(tokenizer, nullptr);
    // " hello": the mark takes h at once; el (-1) before lo (-3), which is then gone; ell + o.
    EXPECT_EQ(tokenizer->encode("hello", false), (Ids{id["\u2581h"], id["ello"]}));
    EXPECT_EQ(tokenizer->encode(" hello", false), (Ids{id["\u2581"], id["\u2581h"], id["ello"]}));
    EXPECT_EQ(tokenizer->encode("l o", false), (Ids{id["\u2581"], id["l"], id["\u2581"], id["o"]}));
    EXPECT_EQ(tokenizer->encode("", false), Ids{});
    EXPECT_EQ(joined(*tokenizer, tokenizer->encode("hello  hello", false)), " hello  hello");
}

TEST(SentencePiece, PutsASpaceInFrontOfEachTextUnlessTold) {
    TestVocabulary vocabulary = base_vocabulary();
    const TokenId mark = vocabulary.add("\u2581");
    const TokenId x = vocabulary.add("x");
    auto tokenizer = made(vocabulary);
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_TRUE(tokenizer->adds_bos());
    EXPECT_EQ(tokenizer->encode("x</s>x", true), (Ids{1, mark, x, 2, mark, x}));
    EXPECT_EQ(tokenizer->encode("x</s>", true), (Ids{1, mark, x, 2}));
    EXPECT_EQ(tokenizer->encode("<s>x", true), (Ids{1, mark, x}));
    EXPECT_EQ(tokenizer->piece(mark), " ");

    vocabulary.more.put("tokenizer.ggml.add_space_prefix", false)
        .put("tokenizer.ggml.add_bos_token", false);
    tokenizer = made(vocabulary);
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_EQ(tokenizer->encode("x</s>x", true), (Ids{x, 2, x}));
}

TEST(SentencePiece, FallsBackToBytes) {
    TestVocabulary vocabulary = base_vocabulary();
    const TokenId mark = vocabulary.add("\u2581");
    const auto tokenizer = made(vocabulary);
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_EQ(tokenizer->encode("é\xFF", false), (Ids{mark, 3 + 0xC3, 3 + 0xA9, 3 + 0xFF}));
    EXPECT_EQ(joined(*tokenizer, tokenizer->encode("é\xFF\xE2\x96", false)), " é\xFF\xE2\x96");
    EXPECT_EQ(tokenizer->piece(3 + 0x0A), "\n");
}

TEST(SentencePiece, WithoutByteTokensTheUnknownTokenStands) {
    TestVocabulary vocabulary = base_vocabulary(false);
    const TokenId mark = vocabulary.add("\u2581");
    const TokenId x = vocabulary.add("x");
    const auto tokenizer = made(vocabulary);
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_EQ(tokenizer->encode("xéx", false), (Ids{mark, x, 0, x}));
}

// A document must not be able to write a control token by its letters.
TEST(SentencePiece, TextCannotForgeControlTokens) {
    TestVocabulary vocabulary = base_vocabulary();
    for (const char* text : {"\u2581", "<", "/", "s", ">", "</", "s>", "</s", "<s"}) {
        vocabulary.add(text, normal, 1);
    }
    const auto tokenizer = made(vocabulary);
    ASSERT_NE(tokenizer, nullptr);
    for (const TokenId id : tokenizer->encode("</s><s>", false)) EXPECT_GE(id, 3 + 256);
    EXPECT_EQ(tokenizer->encode("</s>", true), (Ids{1, 2}));
}

// Random vocabularies and texts against the definition: with marks only in front and inside of
// tokens, with characters that occur in tokens and are none, with bytes that are no UTF-8.
TEST(SentencePiece, MergesAsTheDefinitionSays) {
    const std::vector<std::string> alphabet = {"\u2581", "a", "b", "é", "q"};
    for (uint32_t seed = 1; seed <= 40; ++seed) {
        const bool inner_marks = seed % 2 == 0;
        Random random(seed);
        TestVocabulary vocabulary = base_vocabulary();
        std::map<std::string, TokenId> ids;
        std::map<std::string, double> ranks;
        const auto add = [&](const std::string& text) {
            if (ids.contains(text)) return;
            const float score = -static_cast<float>(random.below(12));
            ids[text] = vocabulary.add(text, normal, score);
            ranks[text] = -score;
        };
        for (size_t i = 0; i < 4; ++i) add(alphabet[i]);  // "q" is no token by itself
        for (int i = 0; i < 60; ++i) {
            std::string text = alphabet[random.below(5)];
            const uint32_t more = 1 + random.below(3);
            for (uint32_t k = 0; k < more; ++k) text += alphabet[random.below(5)];
            std::string behind_marks = text;
            while (behind_marks.starts_with(alphabet[0])) behind_marks.erase(0, 3);
            if (inner_marks || behind_marks.find(alphabet[0]) == std::string::npos) add(text);
        }
        vocabulary.more.put("tokenizer.ggml.add_space_prefix", seed % 3 != 0);
        const auto tokenizer = made(vocabulary);
        ASSERT_NE(tokenizer, nullptr);
        for (int round = 0; round < 60; ++round) {
            std::string text;
            std::vector<std::string> symbols;
            if (seed % 3 != 0) symbols.push_back(alphabet[0]);
            const uint32_t length = 1 + random.below(round % 4 == 0 ? 90 : 12);
            for (uint32_t i = 0; i < length; ++i) {
                const uint32_t which = random.below(7);
                symbols.push_back(which < 5 ? alphabet[which] : which == 5 ? "\xC3" : "漢");
                text += which == 0 ? " " : symbols.back();
            }
            // A lone lead byte in front of an "é" stays alone: the next byte is another lead.
            const auto merged = merge_by_definition(
                symbols, [&](const std::string& left, const std::string& right) {
                    const auto rank = ranks.find(left + right);
                    return rank == ranks.end() ? std::nullopt : std::optional(rank->second);
                });
            Ids expected;
            for (const std::string& symbol : merged) {
                if (ids.contains(symbol)) {
                    expected.push_back(ids[symbol]);
                    continue;
                }
                for (const char c : symbol) expected.push_back(3 + static_cast<uint8_t>(c));
            }
            EXPECT_EQ(tokenizer->encode(text, false), expected) << text;
        }
    }
}

}  // namespace
}  // namespace granary::test

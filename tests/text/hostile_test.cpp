// SPDX-License-Identifier: GPL-3.0-or-later
// Texts that no person writes. Each must come back byte for byte, in linear time. The bound on
// processor time is far above what an idle machine needs (0.3 s a MB for the slowest) and far below
// what work in the square of a megabyte would take.
#include <algorithm>
#include <ctime>

#include "tests/text/reference_merge.h"
#include "tests/text/vocabulary_builder.h"

namespace granary::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double seconds_a_megabyte = 20;
#else
constexpr double seconds_a_megabyte = 2;
#endif
constexpr size_t megabyte = size_t{1} << 20;

std::string repeated(std::string_view unit, size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += unit;
    return text;
}

std::string random_bytes(size_t bytes, uint32_t low, uint32_t count) {
    Random random(5);
    std::string text(bytes, '\0');
    for (char& c : text) c = static_cast<char>(low + random.below(count));
    return text;
}

struct Hostile {
    const char* name;
    std::string text;
};

// long_word: bytes of those that are one word.
std::vector<Hostile> hostile_texts(size_t long_word) {
    std::string newlines;
    for (const char* unit : {"\r\n", "\n\r", "\n", "\r", " \n", "\t\r\n", "\u2028", "\u0085"}) {
        newlines += repeated(unit, megabyte / 8);
    }
    return {
        {"one letter", std::string(long_word, 'a')},
        {"spaces", std::string(long_word, ' ')},
        {"spaces, then a letter", std::string(long_word, ' ') + "x"},
        {"random letters without a space", random_bytes(long_word, 'a', 26)},
        {"random bytes", random_bytes(long_word, 0, 256)},
        {"combining marks", repeated("\u0301", megabyte)},
        {"marks and letters", repeated("e\u0301\u0327", megabyte)},
        {"mixed newlines", newlines},
        {"newlines and blanks in turn", repeated(" \n", megabyte)},
        {"NULs", std::string(megabyte, '\0')},
        {"lone continuation bytes", std::string(megabyte, '\x80')},
        {"lone lead bytes", std::string(megabyte, '\xF0')},
        {"encoded surrogates", repeated("\xED\xA0\x80\xED\xBF\xBF", megabyte)},
        {"characters cut short", repeated("\xF0\x9F\xA6 ", megabyte)},
        {"overlong slashes", repeated("\xC0\xAF", megabyte)},
        {"emoji joined", repeated("👩\u200D", megabyte)},
        {"digits", std::string(megabyte, '7')},
        {"apostrophes", std::string(megabyte, '\'')},
        {"punctuation", random_bytes(megabyte, '!', 15)},
        {"beginnings of special tokens", repeated("<|im_start<|im_end|<|", megabyte)},
        {"special tokens", repeated("<|im_end|>", megabyte)},
    };
}

void expect_all_come_back(const Tokenizer& tokenizer, const std::string& prefix, bool special,
                          size_t long_word = megabyte) {
    for (const auto& [name, text] : hostile_texts(long_word)) {
        const std::clock_t start = std::clock();
        const auto tokens = tokenizer.encode(text, special);
        const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
        // Compared as one truth value: gtest would print megabytes.
        EXPECT_TRUE(joined(tokenizer, tokens, special) == prefix + text) << name;
        EXPECT_LT(seconds, seconds_a_megabyte * static_cast<double>(text.size()) / megabyte)
            << name;
    }
}

class HostileText : public testing::TestWithParam<const char*> {};

TEST_P(HostileText, ComesBackInLinearTime) {
    const std::string pre = GetParam();
    const auto tokenizer = stored_vocabulary(pre == "gpt-2" ? "gpt-2" : "qwen2", pre).make();
    ASSERT_TRUE(tokenizer) << tokenizer.error().message();
    expect_all_come_back(**tokenizer, "", false, pre == "qwen2" ? 8 * megabyte : megabyte);
}

INSTANTIATE_TEST_SUITE_P(PreTokenisers, HostileText,
                         testing::Values("qwen2", "qwen35", "gpt-2", "llama-bpe"));

TEST(HostileTextSpecial, ComesBackInLinearTime) {
    const auto tokenizer = starter_tokenizer();
    ASSERT_NE(tokenizer, nullptr);
    expect_all_come_back(*tokenizer, "", true);
}

// Marks inside tokens too, so that a text is one word and nothing but the heap helps.
TEST(HostileTextSentencePiece, ComesBackInLinearTime) {
    for (const bool inner_marks : {false, true}) {
        TestVocabulary vocabulary;
        vocabulary.model = "llama";
        for (unsigned byte = 0; byte < 256; ++byte) {
            char name[8];
            std::snprintf(name, sizeof name, "<0x%02X>", byte);
            vocabulary.add(name, 6);
        }
        std::string run;
        for (const char* text : {"a", "e", "<", "\u2581", "\u0301"}) {
            run.clear();
            for (int length = 1; length <= 16; ++length) {
                run += text;
                vocabulary.add(run, 1, static_cast<float>(length % 5));
            }
        }
        if (inner_marks) vocabulary.add("a\u2581");
        const auto tokenizer = vocabulary.make();
        ASSERT_TRUE(tokenizer) << tokenizer.error().message();
        expect_all_come_back(**tokenizer, " ", false, inner_marks ? 2 * megabyte : megabyte);
    }
}

// A word longer than the bound is cut there, and nowhere else.
TEST(LongWord, IsCutAtTheBound) {
    TestVocabulary vocabulary = byte_vocabulary();
    const TokenId pair = vocabulary.merge("a", "b");
    const auto tokenizer = vocabulary.make();
    ASSERT_TRUE(tokenizer) << tokenizer.error().message();
    const size_t bound = size_t{1} << 18;
    std::string word = "b";  // the pair at the bound falls apart, all others hold
    while (word.size() < 2 * bound - 1) word += "ab";
    const auto tokens = (*tokenizer)->encode(word, false);
    const auto pairs = static_cast<size_t>(std::count(tokens.begin(), tokens.end(), pair));
    EXPECT_EQ(pairs, (word.size() - 1) / 2 - 1);
    EXPECT_TRUE(joined(**tokenizer, tokens) == word);
}

}  // namespace
}  // namespace granary::test

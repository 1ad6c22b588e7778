// SPDX-License-Identifier: GPL-3.0-or-later
#include <map>
#include <thread>

#include "engine/text/pre_tokenizer.h"
#include "tests/text/reference_merge.h"
#include "tests/text/vocabulary_builder.h"

namespace granary::test {
namespace {

using Ids = std::vector<TokenId>;

// A vocabulary of merges drawn at random over few letters, so that merges compete.
TestVocabulary random_vocabulary(uint32_t seed) {
    Random random(seed);
    TestVocabulary vocabulary = byte_vocabulary();
    std::vector<std::string> parts = {"a", "b", "c"};
    std::map<std::string, TokenId> known;
    while (parts.size() < 40) {
        const auto pick = [&] { return parts[random.below(static_cast<uint32_t>(parts.size()))]; };
        const std::string left = pick();
        const std::string right = pick();
        if (left.size() + right.size() > 9 || known.contains(left + right)) continue;
        known[left + right] = vocabulary.merge(left, right);
        parts.push_back(left + right);
    }
    return vocabulary;
}

TEST(BytePair, WordsAreTheSameWithoutMachineCode) {
    using text::PreTokenizer;
    Random random(8);
    std::string text = "It's 1,234.5 o'clock -- na\u00efve \u4f60\u597d!\r\n\n  \t\xff\xc3( \u00bd";
    for (int i = 0; i < 4000; ++i) text += static_cast<char>(random.below(256));
    for (const char* name : {"qwen2", "qwen35", "gpt-2", "llama-bpe"}) {
        SCOPED_TRACE(name);
        const auto fast = PreTokenizer::make(name, "a file");
        const auto slow = PreTokenizer::make(name, "a file", PreTokenizer::MachineCode::refused);
        ASSERT_TRUE(fast && slow);
        EXPECT_FALSE(slow->is_machine_code());
        PreTokenizer::Words some(*fast, text), others(*slow, text);
        size_t words = 0;
        for (auto word = some.next(); word; word = some.next(), ++words)
            ASSERT_EQ(others.next(), word) << words;
        EXPECT_EQ(others.next(), std::nullopt);
        EXPECT_GT(words, 100u);
    }
}

TEST(BytePair, MergesAsTheDefinitionSays) {
    for (uint32_t seed = 1; seed <= 20; ++seed) {
        const TestVocabulary vocabulary = random_vocabulary(seed);
        std::map<std::string, double> ranks;
        std::map<std::string, TokenId> ids;
        for (size_t i = 0; i < vocabulary.merges.size(); ++i) {
            ranks[vocabulary.merges[i]] = static_cast<double>(i);
        }
        for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
            ids[vocabulary.tokens[i]] = static_cast<TokenId>(i);
        }
        const auto tokenizer = vocabulary.make();
        ASSERT_TRUE(tokenizer) << tokenizer.error().message();
        Random random(seed * 77);
        // Words short and long: both ways of merging, on either side of the border.
        for (const size_t length : {1, 2, 3, 7, 20, 47, 48, 49, 50, 90, 400}) {
            std::string word;
            std::vector<std::string> symbols;
            for (size_t i = 0; i < length; ++i) {
                symbols.push_back(std::string(1, static_cast<char>('a' + random.below(3))));
                word += symbols.back();
            }
            const auto merged = merge_by_definition(
                symbols, [&](const std::string& left, const std::string& right) {
                    const auto rank = ranks.find(left + " " + right);
                    return rank == ranks.end() ? std::nullopt : std::optional(rank->second);
                });
            Ids expected;
            for (const std::string& text : merged) expected.push_back(ids.at(text));
            EXPECT_EQ((*tokenizer)->encode(word, false), expected) << word;
        }
    }
}

TEST(BytePair, TheFirstOfEqualMergesCounts) {
    TestVocabulary vocabulary = byte_vocabulary();
    const TokenId ab = vocabulary.merge("a", "b");
    vocabulary.merge("b", "c");
    vocabulary.merges.push_back("a b");
    const auto tokenizer = vocabulary.make();
    ASSERT_TRUE(tokenizer) << tokenizer.error().message();
    EXPECT_EQ((*tokenizer)->encode("abc", false), (Ids{ab, 'c'}));
}

TEST(BytePair, IgnoresMergesOnlyForLlamaBpe) {
    for (const char* pre : {"llama-bpe", "qwen2"}) {
        TestVocabulary vocabulary = byte_vocabulary();
        vocabulary.pre = pre;
        const TokenId xyz = vocabulary.add("xyz");  // a token that no merge makes
        const auto tokenizer = vocabulary.make();
        ASSERT_TRUE(tokenizer) << tokenizer.error().message();
        const Ids whole = std::string(pre) == "llama-bpe" ? Ids{xyz} : Ids{'x', 'y', 'z'};
        EXPECT_EQ((*tokenizer)->encode("xyz", false), whole) << pre;
        EXPECT_EQ((*tokenizer)->encode("xyzz", false), (Ids{'x', 'y', 'z', 'z'}));
    }
}

TEST(BytePair, SpecialTokens) {
    TestVocabulary vocabulary = byte_vocabulary();
    const TokenId begin = vocabulary.add("<s>", 3);
    const TokenId longer = vocabulary.add("<s><s>", 3);
    const TokenId think = vocabulary.add("<think>", 4);
    vocabulary.add("", 3);
    const TokenId unused = vocabulary.add("<unused>", 5);
    vocabulary.more.put("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(begin))
        .put("tokenizer.ggml.add_bos_token", true);
    const auto made = vocabulary.make();
    ASSERT_TRUE(made) << made.error().message();
    const Tokenizer& tokenizer = **made;
    EXPECT_TRUE(tokenizer.adds_bos());

    // The longest name wins; BOS is put in front once; the rest is text.
    EXPECT_EQ(tokenizer.encode("x<s><s><s>", true), (Ids{begin, 'x', longer, begin}));
    EXPECT_EQ(tokenizer.encode("<s>x", true), (Ids{begin, 'x'}));
    EXPECT_EQ(tokenizer.encode("", true), (Ids{begin}));
    EXPECT_EQ(tokenizer.encode("", false), Ids{});
    EXPECT_EQ(tokenizer.encode("<think>", true), (Ids{begin, think}));
    EXPECT_EQ(tokenizer.encode("<think", true), (Ids{begin, '<', 't', 'h', 'i', 'n', 'k'}));
    EXPECT_EQ(tokenizer.encode("<s>", false), (Ids{'<', 's', '>'}));
    EXPECT_EQ(tokenizer.encode("<unused>", true).size(), 9u);

    EXPECT_EQ(tokenizer.piece(begin), "");
    EXPECT_EQ(tokenizer.piece(begin, true), "<s>");
    EXPECT_EQ(tokenizer.piece(think), "<think>");
    EXPECT_EQ(tokenizer.piece(unused), "");
}

TEST(BytePair, AnswerEndsComeFromIdsAndNames) {
    TestVocabulary vocabulary = byte_vocabulary();
    const TokenId eos = vocabulary.add("<|over|>", 3);
    const TokenId eot = vocabulary.add("<|turn|>", 3);
    const TokenId eom = vocabulary.add("<|message|>", 3);
    const TokenId named = vocabulary.add("<|im_end|>", 1);  // wrongly called normal
    const TokenId end = vocabulary.add("<|end|>", 3);
    vocabulary.more.put("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(eos))
        .put("tokenizer.ggml.eot_token_id", static_cast<uint32_t>(eot))
        .put("tokenizer.ggml.eom_token_id", static_cast<uint32_t>(eom));
    const auto ends = [](const TestVocabulary& which) {
        Ids found;
        const auto tokenizer = which.make();
        EXPECT_TRUE(tokenizer) << tokenizer.error().message();
        for (TokenId id = 0; id < static_cast<TokenId>((*tokenizer)->size()); ++id) {
            if ((*tokenizer)->ends_answer(id)) found.push_back(id);
        }
        return found;
    };
    EXPECT_EQ(ends(vocabulary), (Ids{eos, eot, eom, named, end}));
    const auto tokenizer = vocabulary.make();
    EXPECT_EQ((*tokenizer)->encode("<|im_end|>", true), (Ids{named}));
    EXPECT_EQ((*tokenizer)->piece(named), "");
    EXPECT_EQ((*tokenizer)->eos(), eos);
    EXPECT_EQ((*tokenizer)->bos(), -1);

    // gpt-oss writes several messages in one answer: <|end|> ends one of them.
    const TokenId returns = vocabulary.add("<|return|>", 3);
    EXPECT_EQ(ends(vocabulary), (Ids{eos, eot, eom, named, end, returns}));
    const TokenId calls = vocabulary.add("<|call|>", 3);
    EXPECT_EQ(ends(vocabulary), (Ids{eos, eot, eom, named, returns, calls}));
}

TEST(BytePair, ThreadsShareOne) {
    const auto tokenizer = starter_tokenizer();
    ASSERT_NE(tokenizer, nullptr);
    const std::string text = read_file(GRANARY_TEST_DATA "/tokenizer/qwen2.inp");
    const Ids expected = tokenizer->encode(text, true);
    std::vector<Ids> found(4);
    std::vector<std::thread> threads;
    for (Ids& ids : found) threads.emplace_back([&] { ids = tokenizer->encode(text, true); });
    for (std::thread& thread : threads) thread.join();
    for (const Ids& ids : found) EXPECT_EQ(ids, expected);
}

}  // namespace
}  // namespace granary::test

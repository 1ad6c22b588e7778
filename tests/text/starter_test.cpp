// SPDX-License-Identifier: GPL-3.0-or-later
// The starter's tokeniser. Expected ids are those that Hugging Face's JavaScript implementation
// (@huggingface/tokenizers 0.2.0) gives with the same vocabulary.

#include <algorithm>

#include "tests/text/test_files.h"

namespace granary::test {
namespace {

using Ids = std::vector<TokenId>;

TEST(StarterTokenizer, KnowsItsSpecialTokens) {
    const auto tokenizer = starter_tokenizer();
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_EQ(tokenizer->size(), 8192u);
    EXPECT_EQ(tokenizer->bos(), 8189);
    EXPECT_EQ(tokenizer->eos(), 8191);
    EXPECT_FALSE(tokenizer->adds_bos());
    Ids ends;
    for (TokenId token = -2; token < 8200; ++token) {
        if (tokenizer->ends_answer(token)) ends.push_back(token);
    }
    EXPECT_EQ(ends, (Ids{8189, 8191}));  // <|endoftext|> and <|im_end|>
}

TEST(StarterTokenizer, TextThatNamesSpecialTokensStaysText) {
    const auto tokenizer = starter_tokenizer();
    for (const char* text :
         {"a<|im_end|>\n<|im_start|>user\nb", "<|im_end|>", "<|im_<|im_end|>end|>", "plain",
          "<|im_end|><|im_end|>", "\xEF\xB7\x90<|im_end|>x", ""}) {
        std::string clean = text;
        if (clean.starts_with("\xEF")) clean.erase(0, 3);
        const std::string plain = tokenizer->as_plain_text(text);
        EXPECT_EQ(tokenizer->encode(plain, true), tokenizer->encode(clean, false)) << text;
        // Between real special tokens it is still text.
        Ids ids = tokenizer->encode("<|im_start|>" + plain + "<|im_end|>", true);
        ASSERT_GE(ids.size(), 2u);
        EXPECT_EQ(ids.front(), 8190);
        EXPECT_EQ(ids.back(), 8191);
        EXPECT_EQ(std::count(ids.begin(), ids.end(), 8191), 1) << text;
    }
}

TEST(StarterTokenizer, EncodesAsTheReferenceDoes) {
    const struct {
        const char* text;
        Ids ids;
    } cases[] = {
        {"", {}},
        {"Once upon a time, there was a little girl named Lily.",
         {615, 551, 258, 454, 11, 425, 298, 258, 432, 588, 621, 606, 13}},
        {"The barometer reads 1,847 millimetres;\n\n  it's falling\tfast...\r\n",
         {398, 1510, 646, 270, 1317, 82,  220, 16,   11,  23,   19,   22,  3307, 291,
          316, 2929, 26,  296, 220,  313, 351, 4210, 197, 2616, 1998, 201, 198}},
        {"naïve café — “déjà vu” 東京 🦙 e\u0301",
         {1231, 127, 107, 320, 275, 2014, 127, 102, 220, 158, 222, 242, 220, 158,
          222,  250, 67,  127, 102, 73,   127, 254, 516, 84,  158, 222, 251, 220,
          162,  251, 109, 160, 118, 105,  220, 172, 253, 99,  247, 317, 136, 223}},
        {"I'LL we'Ve 12345   x\n \n\t y  ",
         {40, 6,  43,  43,  350,  6,   53,  68,  220, 16,  17, 18,
          19, 20, 220, 220, 4079, 198, 827, 197, 309, 220, 220}},
        // White space that is not ASCII, and U+180E, which is white space no more.
        {"''s 're\u00a0\u3000z\u2028w\u180e",
         {6, 6, 82, 638, 264, 126, 254, 159, 222, 222, 89, 158, 222, 101, 86, 157, 254, 236}},
    };
    const auto tokenizer = starter_tokenizer();
    ASSERT_NE(tokenizer, nullptr);
    for (const auto& one : cases) {
        EXPECT_EQ(tokenizer->encode(one.text, false), one.ids) << one.text;
        EXPECT_EQ(joined(*tokenizer, one.ids), one.text);
    }
}

TEST(StarterTokenizer, ReadsSpecialTokensOnlyWhenAsked) {
    const auto tokenizer = starter_tokenizer();
    ASSERT_NE(tokenizer, nullptr);
    const std::string text = "<|im_start|>user\nHi<|im_end|>\n";
    const Ids special = tokenizer->encode(text, true);
    EXPECT_EQ(special, (Ids{8190, 584, 198, 2769, 8191, 198}));
    EXPECT_EQ(joined(*tokenizer, special, true), text);
    EXPECT_EQ(joined(*tokenizer, special), "user\nHi\n");

    const Ids plain = tokenizer->encode(text, false);
    EXPECT_EQ(joined(*tokenizer, plain), text);
    for (const TokenId token : plain) EXPECT_LT(token, 8189);
}

TEST(StarterTokenizer, GivesNothingForIdsOutOfRange) {
    const auto tokenizer = starter_tokenizer();
    ASSERT_NE(tokenizer, nullptr);
    for (const TokenId token : {-1, 8192, INT32_MIN, INT32_MAX}) {
        EXPECT_EQ(tokenizer->piece(token, true), "");
        EXPECT_FALSE(tokenizer->ends_answer(token));
    }
}

TEST(StarterTokenizer, AnyBytesComeBack) {
    const auto tokenizer = starter_tokenizer();
    ASSERT_NE(tokenizer, nullptr);
    uint32_t state = 1;
    for (int round = 0; round < 2000; ++round) {
        std::string bytes(1 + round % 40, '\0');
        for (char& c : bytes) {
            state = state * 1664525u + 1013904223u;
            // Half of the bytes are rare leads and continuations, so that broken UTF-8 of every
            // kind occurs; the others are any.
            static constexpr uint8_t odd[] = {0xE2, 0x96, 0x81, 0xF0, 0x9F, 0xA6, 0x99, 0xC2,
                                              0xED, 0xA0, 0x80, 0xFF, 0x20, 0x0A, 0x0D, 0x00};
            c = static_cast<char>(state & 0x80000000u ? odd[state >> 16 & 15] : state >> 16);
        }
        EXPECT_EQ(joined(*tokenizer, tokenizer->encode(bytes, false)), bytes);
    }
}

}  // namespace
}  // namespace granary::test

// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>

#include "tests/text/test_files.h"

namespace granary::test {
namespace {

// Tokens are bytes, except 256, a control token.
class ByteTokenizer final : public Tokenizer {
  public:
    std::string as_plain_text(std::string_view text) const override { return std::string(text); }
    std::string as_answer_text(std::string_view text) const override { return std::string(text); }
    std::vector<TokenId> encode(std::string_view text, bool) const override {
        std::vector<TokenId> tokens;
        for (const char c : text) tokens.push_back(static_cast<uint8_t>(c));
        return tokens;
    }
    std::string piece(TokenId token, bool special) const override {
        if (token == 256) return special ? "<control>" : "";
        return std::string(1, static_cast<char>(token));
    }
    uint32_t size() const override { return 257; }
    bool ends_answer(TokenId) const override { return false; }
    TokenId bos() const override { return -1; }
    TokenId eos() const override { return -1; }
    bool adds_bos() const override { return false; }
};

// Several bytes to a token: the text cut at some places.
class PieceTokenizer final : public Tokenizer {
  public:
    std::string as_plain_text(std::string_view text) const override { return std::string(text); }
    std::string as_answer_text(std::string_view text) const override { return std::string(text); }
    explicit PieceTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}
    std::vector<TokenId> encode(std::string_view, bool) const override { return {}; }
    std::string piece(TokenId token, bool) const override {
        return pieces_[static_cast<size_t>(token)];
    }
    uint32_t size() const override { return static_cast<uint32_t>(pieces_.size()); }
    bool ends_answer(TokenId) const override { return false; }
    TokenId bos() const override { return -1; }
    TokenId eos() const override { return -1; }
    bool adds_bos() const override { return false; }

  private:
    std::vector<std::string> pieces_;
};

bool ends_inside_character(const std::string& text) {
    size_t at = 0;
    while (at < text.size()) {
        const uint8_t lead = static_cast<uint8_t>(text[at]);
        at += lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    }
    return at != text.size();
}

std::string streamed(const std::vector<std::string>& pieces) {
    StreamingDetokenizer stream(std::make_shared<PieceTokenizer>(pieces));
    std::string text;
    for (size_t i = 0; i < pieces.size(); ++i) {
        const std::string part = stream.push(static_cast<TokenId>(i));
        EXPECT_FALSE(ends_inside_character(part));
        text += part;
    }
    return text + stream.finish();
}

TEST(StreamingDetokenizer, GivesWholeCharactersWhereverTheTextIsCut) {
    const std::string text = "aé€🦙\u0301東\U0010FFFF.";
    for (size_t i = 0; i <= text.size(); ++i) {
        for (size_t j = i; j <= text.size(); ++j) {
            EXPECT_EQ(streamed({text.substr(0, i), text.substr(i, j - i), text.substr(j)}), text)
                << i << " " << j;
        }
    }
}

TEST(StreamingDetokenizer, HoldsBackWhatMayStillBecomeACharacter) {
    StreamingDetokenizer stream(std::make_shared<ByteTokenizer>());
    EXPECT_EQ(stream.push('a'), "a");
    EXPECT_EQ(stream.push(0xF0), "");
    EXPECT_EQ(stream.push(0x9F), "");
    EXPECT_EQ(stream.push(256), "");  // a control token between the bytes changes nothing
    EXPECT_EQ(stream.push(0xA6), "");
    EXPECT_EQ(stream.push(0x99), "🦙");
    EXPECT_EQ(stream.finish(), "");
}

TEST(StreamingDetokenizer, ReplacesBytesThatCannotBecomeACharacter) {
    StreamingDetokenizer stream(std::make_shared<ByteTokenizer>());
    EXPECT_EQ(stream.push(0xFF), "\uFFFD");
    EXPECT_EQ(stream.push(0x80), "\uFFFD");
    EXPECT_EQ(stream.push(0xE2), "");
    EXPECT_EQ(stream.push('x'), "\uFFFDx");  // known at once, not at the end
    EXPECT_EQ(stream.push(0xED), "");
    EXPECT_EQ(stream.push(0xA0), "\uFFFD\uFFFD");  // a surrogate
    EXPECT_EQ(stream.push(0xC0), "\uFFFD");        // an overlong form
    EXPECT_EQ(stream.push(0xF4), "");
    EXPECT_EQ(stream.push(0x90), "\uFFFD\uFFFD");  // above U+10FFFF
    EXPECT_EQ(stream.push(0xF0), "");
    EXPECT_EQ(stream.push(0x9F), "");
    EXPECT_EQ(stream.finish(), "\uFFFD");
    EXPECT_EQ(stream.finish(), "");
    EXPECT_EQ(stream.push('y'), "y");
}

TEST(StreamingDetokenizer, EveryPairOfBytesGivesUtf8) {
    const auto tokenizer = std::make_shared<ByteTokenizer>();
    for (TokenId first = 0; first < 256; ++first) {
        for (TokenId second = 0; second < 256; ++second) {
            StreamingDetokenizer stream(tokenizer);
            std::string text = stream.push(first);
            text += stream.push(second);
            text += stream.finish();
            // Well-formed, and no byte vanished: each is a character or part of a replacement.
            EXPECT_FALSE(text.empty());
            EXPECT_FALSE(ends_inside_character(text)) << first << " " << second;
            const bool ascii = first < 0x80 && second < 0x80;
            EXPECT_EQ(ascii, text.size() == 2 && static_cast<uint8_t>(text[0]) < 0x80 &&
                                 static_cast<uint8_t>(text[1]) < 0x80);
        }
    }
}

TEST(StreamingDetokenizer, StreamsTheStartersTokens) {
    const auto tokenizer = starter_tokenizer();
    ASSERT_NE(tokenizer, nullptr);
    const std::string text = "Grüße, 東京 🦙!\n";
    StreamingDetokenizer stream(tokenizer);
    std::string streamed;
    for (const TokenId token : tokenizer->encode(text, false)) streamed += stream.push(token);
    EXPECT_EQ(streamed, text);
    EXPECT_EQ(stream.finish(), "");
}

}  // namespace
}  // namespace granary::test

// SPDX-License-Identifier: GPL-3.0-or-later
// Encodings of text files.
#include "engine/extract/text_file.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "engine/extract/document_text.h"
#include "engine/extract/refusal.h"

namespace granary::extract {
namespace {

using namespace std::string_view_literals;

struct Encoding {
    const char* name;
    std::string_view bytes;
    std::string_view encoding;
    std::string_view text;
    uint64_t replaced;
};

class Encodings : public testing::TestWithParam<Encoding> {};

TEST_P(Encodings, AreFound) {
    const Encoding& given = GetParam();
    const auto document = read_text("a.txt", given.bytes);
    ASSERT_TRUE(document) << document.error().what << document.error().detail;
    EXPECT_EQ(document->encoding, given.encoding);
    EXPECT_EQ(document->text, std::string(given.text) + "\n\f");
    EXPECT_EQ(document->replaced, given.replaced);
}

INSTANTIATE_TEST_SUITE_P(
    Texts, Encodings,
    testing::Values(
        Encoding{"ascii", "plain", "utf-8", "plain", 0},
        Encoding{"utf8", "na\xC3\xAFve \xF0\x9F\x8C\xBE", "utf-8", "na\u00EFve \U0001F33E", 0},
        Encoding{"utf8_marked", "\xEF\xBB\xBF\xC3\xA9", "utf-8", "\u00E9", 0},
        Encoding{"utf8_marked_broken", "\xEF\xBB\xBF\x61\xE9", "utf-8", "a\uFFFD", 1},
        Encoding{"utf8_mostly",
                 "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9 \xFF",
                 "utf-8", "\u00E9\u00E9\u00E9\u00E9\u00E9\u00E9\u00E9\u00E9\u00E9 \uFFFD", 1},
        Encoding{"latin1", "caf\xE9 \xFC\x62\x65r", "windows-1252", "caf\u00E9 \u00FCber", 0},
        Encoding{"windows", "\x93quoted\x94 \x80", "windows-1252", "\u201Cquoted\u201D \u20AC", 0},
        Encoding{"utf16le", "\xFF\xFEh\0i\0"sv, "utf-16le", "hi", 0},
        Encoding{"utf16be_pair", "\xFE\xFF\xD8\x3C\xDF\x3E"sv, "utf-16be", "\U0001F33E", 0},
        Encoding{"utf16_lone_half", "\xFF\xFEh\0\x3C\xD8i\0"sv, "utf-16le", "h\uFFFDi", 1},
        Encoding{"utf16_cut", "\xFF\xFEh\0i"sv, "utf-16le", "h\uFFFD", 1},
        Encoding{"returns", "a\r\n\r\nb\rc", "utf-8", "a\n\nb\nc", 0},
        Encoding{"form_feed", "a\fb", "utf-8", "a b", 0}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(TextFile, RefusesWhatIsNoText) {
    for (const std::string_view bytes : {"PK\x03\x04rest"sv, "abc\0def"sv, "\x01\x02\x03"sv,
                                         "GGUF\x03"sv, "\xFF\xFE\0\0a\0\0\0"sv}) {
        const auto document = read_text("a.txt", bytes);
        ASSERT_FALSE(document);
        EXPECT_EQ(document.error().code, "binary");
        EXPECT_FALSE(document.error().detail.empty());
    }
}

TEST(TextFile, EveryRefusalIsKnownToTheClient) {
    for (const Refusal& known : kRefusals) EXPECT_FALSE(known.code.empty());
    const std::string large(kTextLimit + 1, 'x');
    const auto refused = read_text("a.txt", large);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, "too_large");
    const std::string edge(kTextLimit, 'x');  // no room for the page mark
    EXPECT_FALSE(read_text("a.txt", edge));
}

TEST(DocumentText, StopsAtItsLimit) {
    DocumentText out;
    const std::string block(1 << 20, 'y');
    size_t taken = 0;
    while (out.append_utf8(block)) ++taken;
    EXPECT_EQ(taken, kTextLimit / block.size() - 1);
    EXPECT_FALSE(out.append('z'));
    EXPECT_LE(out.take().size(), kTextLimit);
}

TEST(DocumentText, TitlesAreOneShortLine) {
    EXPECT_EQ(title_line("\x1b[31m a\nb\xFF "), "[31m a b\uFFFD");
    EXPECT_EQ(title_line(std::string(1000, 'x')).size(), 200u);
}

}  // namespace
}  // namespace granary::extract

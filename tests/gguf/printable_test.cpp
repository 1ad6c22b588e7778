// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/gguf/printable.h"

#include <gtest/gtest.h>

namespace granary::gguf {
namespace {

TEST(Printable, KeepsText) {
    EXPECT_EQ(printable(""), "");
    EXPECT_EQ(printable("plain, ünïcode, 日本, 😀"), "plain, ünïcode, 日本, 😀");
    EXPECT_EQ(quoted("say \"hi\""), "\"say \\\"hi\\\"\"");
}

TEST(Printable, EscapesWhatMovesATerminal) {
    EXPECT_EQ(printable("a\x1b[2Jb"), "a\\u{1b}[2Jb");
    EXPECT_EQ(printable(std::string_view("\0\a\x7f", 3)), "\\u{0}\\u{7}\\u{7f}");
    EXPECT_EQ(printable("\n\t\r\\"), "\\n\\t\\r\\\\");
    EXPECT_EQ(printable("\xc2\x9b"), "\\u{9b}") << "C1: a one-character CSI";
    EXPECT_EQ(printable("\xe2\x80\xae"
                        "txt"),
              "\\u{202e}txt")
        << "right-to-left override";
    EXPECT_EQ(printable("\xe2\x80\xa8"), "\\u{2028}");
    EXPECT_EQ(printable("\xe2\x81\xa6"), "\\u{2066}");
}

TEST(Printable, ShowsBytesThatAreNoText) {
    EXPECT_EQ(printable("\xff\xc0\x80"), "\\xff\\xc0\\x80");
    EXPECT_EQ(printable("\xe2\x82"), "\\xe2\\x82") << "cut short";
    EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
    EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "above U+10FFFF";
    EXPECT_EQ(printable("\xe0\x80\xaf"), "\\xe0\\x80\\xaf") << "overlong";
}

TEST(Printable, CutsAtACharacter) {
    EXPECT_EQ(printable("abcdef", 6), "abcdef");
    EXPECT_EQ(printable("abcdef", 5), "abcde...");
    EXPECT_EQ(printable("aüb", 2), "a...");
}

}  // namespace
}  // namespace granary::gguf

// SPDX-License-Identifier: GPL-3.0-or-later
// Documents that are what they seem: text comes out, page by page.
#include <gtest/gtest.h>

#include "engine/extract/client.h"
#include "pdf_writer.h"
#include "scratch_folder.h"

namespace granary {
namespace {

using test::ScratchFolder;
using test::write_pdf;

Result<ExtractedDocument> extract(const std::string& file) {
    const StopSignal stop;
    return extract_document(GRANARY_EXTRACT, file, stop);
}

TEST(Document, TextFileIsOnePage) {
    const ScratchFolder folder;
    const auto document = extract(folder.write("a b.txt", "One.\r\nTwo\fhalves.\rThree"));
    ASSERT_TRUE(document) << document.error().message();
    EXPECT_EQ(document->text, "One.\nTwo halves.\nThree\n\f");
    EXPECT_EQ(document->prompt_text(), "One.\nTwo halves.\nThree");
    EXPECT_EQ(document->format, "text");
    EXPECT_EQ(document->encoding, "utf-8");
    EXPECT_EQ(document->title, "a b.txt");
    EXPECT_EQ(document->pages, 1u);
}

TEST(Document, MarkdownGivesItsHeadingAsTitle) {
    const ScratchFolder folder;
    const auto document = extract(folder.write("x.MD", "intro\n# The  Title\n## Other\n"));
    ASSERT_TRUE(document) << document.error().message();
    EXPECT_EQ(document->format, "markdown");
    EXPECT_EQ(document->title, "The Title");
}

TEST(Document, SourceFileThatNamesThePdfMarkIsSource) {
    const ScratchFolder folder;
    const auto document = extract(folder.write("pdf.cpp", "// finds %PDF-1.7\nint x;\n"));
    ASSERT_TRUE(document) << document.error().message();
    EXPECT_EQ(document->format, "source");
    EXPECT_EQ(document->prompt_text(), "// finds %PDF-1.7\nint x;");
}

TEST(Document, NameThatLooksLikeAnOption) {
    const ScratchFolder folder;
    folder.write("--help", "text");
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(folder.path(""));
    const auto document = extract("--help");
    std::filesystem::current_path(before);
    ASSERT_TRUE(document) << document.error().message();
    EXPECT_EQ(document->prompt_text(), "text");
}

TEST(Document, PdfPagesInOrder) {
    const ScratchFolder folder;
    const auto document = extract(folder.write(
        "three.pdf", write_pdf({"First page.\nSecond line.", "", "Caf\xE9 \\(third\\)."},
                               {.title = "Three pages"})));
    ASSERT_TRUE(document) << document.error().message();
    EXPECT_EQ(document->text, "First page.\nSecond line.\n\f\fCaf\u00E9 (third).\n\f");
    EXPECT_EQ(document->prompt_text(), "First page.\nSecond line.\n\n\nCaf\u00E9 (third).");
    EXPECT_EQ(document->format, "pdf");
    EXPECT_EQ(document->title, "Three pages");
    EXPECT_EQ(document->pages, 3u);
    EXPECT_EQ(document->encoding, "");
}

TEST(Document, PdfBehindOtherBytes) {
    const ScratchFolder folder;
    const auto document =
        extract(folder.write("late.pdf", "some header\n" + write_pdf({"Found it."})));
    ASSERT_TRUE(document) << document.error().message();
    EXPECT_EQ(document->prompt_text(), "Found it.");
}

// Text in a predefined CJK encoding, with no font and no table in the file: only poppler-data
// knows what the codes mean.
TEST(Document, PdfWithAPredefinedChineseEncoding) {
    const ScratchFolder folder;
    const std::string font =
        "<</Type/Font/Subtype/Type0/BaseFont/STSong-Light/Encoding/GBK-EUC-H"
        "/DescendantFonts[12 0 R]>>";
    const std::string descendant =
        "<</Type/Font/Subtype/CIDFontType0/BaseFont/STSong-Light"
        "/CIDSystemInfo<</Registry(Adobe)/Ordering(GB1)/Supplement 2>>"
        "/FontDescriptor 13 0 R>>";
    const std::string descriptor =
        "<</Type/FontDescriptor/FontName/STSong-Light/Flags 6/FontBBox[-25 -254 1000 880]"
        "/ItalicAngle 0/Ascent 880/Descent -120/CapHeight 880/StemV 93>>";
    const auto document = extract(folder.write(
        "gb.pdf", write_pdf({"<C4E3BAC3>"}, {.font = font, .objects = {descendant, descriptor}})));
    ASSERT_TRUE(document) << document.error().message();
    EXPECT_EQ(document->prompt_text(), "\u4F60\u597D");
}

TEST(Document, TheWelcomeDocument) {
    const auto document = extract(GRANARY_RESOURCES "/welcome/tales-from-mill-hill.txt");
    ASSERT_TRUE(document) << document.error().message();
    EXPECT_EQ(document->pages, 1u);
    EXPECT_EQ(document->replaced, 0u);
    EXPECT_TRUE(document->prompt_text().ends_with("it was slow."));
}

}  // namespace
}  // namespace granary

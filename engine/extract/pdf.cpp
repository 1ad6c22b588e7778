// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/extract/pdf.h"

#include <poppler-document.h>
#include <poppler-global.h>
#include <poppler-page.h>

#include <memory>

#include "engine/extract/document_text.h"
#include "engine/extract/input_file.h"
#include "engine/extract/refusal.h"
#include "gpu/error.h"

namespace granary::extract {
namespace {

// A file may claim any number of pages; real documents stay far below this.
constexpr int kPageLimit = 100'000;

std::string utf8(const poppler::ustring& text) {
    const poppler::byte_array bytes = text.to_utf8();
    return std::string(bytes.begin(), bytes.end());
}

}  // namespace

bool is_pdf(const std::string& path, std::string_view bytes) {
    if (bytes.starts_with("%PDF-")) return true;
    const bool named = path.ends_with(".pdf") || path.ends_with(".PDF");
    return named && bytes.substr(0, 1024).find("%PDF-") != std::string_view::npos;
}

Outcome<Document> read_pdf(const std::string& path, std::string_view bytes) {
    // Its complaints about every small flaw help nobody here.
    poppler::set_debug_error_function([](const std::string&, void*) {}, nullptr);
    const std::unique_ptr<poppler::document> pdf(
        poppler::document::load_from_raw_data(bytes.data(), static_cast<int>(bytes.size())));
    if (!pdf) {
        return refuse("damaged", "this PDF file is damaged",
                      "no page tree can be read from its " + format_bytes(bytes.size()));
    }
    if (pdf->is_locked()) {
        return refuse("encrypted", "this PDF file is encrypted and needs a password");
    }
    const int pages = pdf->pages();
    if (pages <= 0) return refuse("damaged", "this PDF file has no pages");
    if (pages > kPageLimit) {
        return refuse("too_large", "this PDF file has too many pages",
                      std::to_string(pages) + ", at most " + std::to_string(kPageLimit));
    }
    DocumentText out;
    int readable = 0;
    for (int i = 0; i < pages; ++i) {
        const std::unique_ptr<poppler::page> page(pdf->create_page(i));
        bool room = true;
        if (page) {
            ++readable;
            // Reading order: a column is read to its end before the next one.
            std::string text =
                utf8(page->text(poppler::rectf(), poppler::page::non_raw_non_physical_layout));
            if (text.ends_with('\f')) text.pop_back();
            room = out.append_utf8(text);
        }
        if (!(room && out.end_page())) {
            return refuse("too_large", "the document is too large",
                          "more than " + format_bytes(kTextLimit) + " of text on page " +
                              std::to_string(i + 1) + " of " + std::to_string(pages));
        }
    }
    if (readable == 0) {
        return refuse("damaged", "this PDF file is damaged",
                      "none of its " + std::to_string(pages) + " pages can be read");
    }
    if (out.blank()) {
        return refuse("no_text", "this PDF file holds no text",
                      std::to_string(pages) + " pages, perhaps scanned pictures");
    }
    Document document;
    document.format = "pdf";
    document.pages = static_cast<uint32_t>(pages);
    document.replaced = out.replaced();
    document.title = title_line(utf8(pdf->get_title()));
    if (document.title.empty()) document.title = file_name(path);
    document.text = out.take();
    return document;
}

}  // namespace granary::extract

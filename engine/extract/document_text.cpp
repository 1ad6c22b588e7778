// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/extract/document_text.h"

#include "engine/extract/refusal.h"
#include "engine/text/utf8.h"

namespace granary::extract {
namespace {

constexpr char32_t kReplacement = 0xFFFD;
// The longest character, a line feed and a page mark: what may follow any check.
constexpr size_t kRoom = 6;

// Calls f with each character of `bytes`, U+FFFD for each ill-formed part, until f says false.
template <class F>
void each_character(std::string_view bytes, F&& f) {
    using Kind = text::Utf8Step::Kind;
    while (!bytes.empty()) {
        const text::Utf8Step step = text::utf8_step(bytes);
        const bool whole = step.kind == Kind::character;
        if (!f(whole ? text::code_point(bytes.substr(0, step.bytes)) : kReplacement, whole)) return;
        bytes.remove_prefix(step.bytes);
    }
}

}  // namespace

bool DocumentText::append(char32_t point) {
    if (full_ || text_.size() + kRoom > kTextLimit) {
        full_ = true;
        return false;
    }
    const bool second_half = point == '\n' && after_return_;
    after_return_ = point == '\r';
    if (second_half) return true;
    if (point == '\r') point = '\n';
    if (point == '\f') point = ' ';
    if (point == 0) {
        point = kReplacement;
        ++replaced_;
    }
    if (point > ' ') printed_ = true;
    text::append_utf8(point, text_);
    return true;
}

bool DocumentText::append_utf8(std::string_view bytes) {
    each_character(bytes, [&](char32_t point, bool whole) {
        if (!whole) ++replaced_;
        return append(point);
    });
    return !full_;
}

bool DocumentText::end_page() {
    const size_t last = text_.find_last_not_of(" \t\n");
    const size_t end = last == std::string::npos ? 0 : last + 1;
    text_.resize(end < page_start_ ? page_start_ : end);
    if (text_.size() > page_start_) text_ += '\n';
    text_ += '\f';
    page_start_ = text_.size();
    after_return_ = false;
    if (text_.size() + kRoom > kTextLimit) full_ = true;
    return !full_;
}

std::string title_line(std::string_view bytes) {
    std::string line;
    size_t characters = 0;
    each_character(bytes, [&](char32_t point, bool) {
        const bool control = point < ' ' || (point >= 0x7F && point < 0xA0);
        if (!(control || point == ' ')) {
            text::append_utf8(point, line);
            ++characters;
        } else if (!line.empty() && line.back() != ' ') {
            line += ' ';
            ++characters;
        }
        return characters < 200;
    });
    while (!line.empty() && line.back() == ' ') line.pop_back();
    return line;
}

}  // namespace granary::extract

// SPDX-License-Identifier: GPL-3.0-or-later
// Text on its way out: always valid UTF-8 with plain line ends, never longer than the limit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace granary::extract {

class DocumentText {
  public:
    // Both say false, and take nothing more, once the text would pass kTextLimit.
    // CR LF and CR become LF, U+000C a space, U+0000 and what is no character U+FFFD.
    bool append(char32_t point);
    bool append_utf8(std::string_view bytes);

    // Cuts white space from the end of the page, then writes its mark.
    bool end_page();

    uint64_t replaced() const { return replaced_; }
    bool blank() const { return !printed_; }  // nothing but white space so far
    std::string take() { return std::move(text_); }

  private:
    std::string text_;
    size_t page_start_ = 0;
    uint64_t replaced_ = 0;
    bool after_return_ = false;
    bool printed_ = false;
    bool full_ = false;
};

// One line to show as a title: control characters become spaces, 200 characters at most.
std::string title_line(std::string_view bytes);

}  // namespace granary::extract

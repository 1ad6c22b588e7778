// SPDX-License-Identifier: GPL-3.0-or-later
// What the extractor's readers give: a document, or a refusal.
#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace granary::extract {

struct Document {
    std::string format;    // "text", "markdown", "source", "pdf"
    std::string encoding;  // of a text file: "utf-8", "utf-16le", "utf-16be", "windows-1252"
    std::string title;     // UTF-8, one line, at most 200 characters
    std::string text;      // UTF-8, U+000C after each page
    uint32_t pages = 0;
    uint64_t replaced = 0;  // characters that could not be read and became U+FFFD
};

struct Refused {
    std::string code;  // one of kRefusals
    std::string what, detail;
};

template <class T>
using Outcome = tl::expected<T, Refused>;

inline tl::unexpected<Refused> refuse(std::string code, std::string what, std::string detail = {}) {
    return tl::unexpected<Refused>(Refused{std::move(code), std::move(what), std::move(detail)});
}

}  // namespace granary::extract

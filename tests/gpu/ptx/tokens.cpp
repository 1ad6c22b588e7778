// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/gpu/ptx/tokens.h"

#include <algorithm>
#include <cctype>

namespace granary::test::ptx {
namespace {

bool in_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' ||
           c == '.';
}

}  // namespace

std::vector<std::string_view> tokens(std::string_view text) {
    std::vector<std::string_view> found;
    found.reserve(text.size() / 4);
    for (size_t at = 0; at < text.size();) {
        const char c = text[at];
        if (std::isspace(static_cast<unsigned char>(c))) {
            ++at;
        } else if (text.substr(at, 2) == "//") {
            at = std::min(text.find('\n', at), text.size());
        } else if (c == '"') {
            const size_t end = std::min(text.find('"', at + 1), text.size() - 1) + 1;
            found.push_back(text.substr(at, end - at));
            at = end;
        } else if (in_word(c)) {
            size_t end = at;
            // "L2::128B" is part of an operation, "LABEL:" ends with its colon.
            while (end < text.size() && (in_word(text[end]) || text.substr(end, 2) == "::"))
                end += text[end] == ':' ? 2 : 1;
            found.push_back(text.substr(at, end - at));
            at = end;
        } else {
            found.push_back(text.substr(at++, 1));
        }
    }
    return found;
}

std::vector<std::string_view> split_at_dots(std::string_view word) {
    std::vector<std::string_view> parts;
    while (!word.empty()) {
        const size_t end = std::min(word.find('.'), word.size());
        if (end > 0) parts.push_back(word.substr(0, end));
        word.remove_prefix(std::min(end + 1, word.size()));
    }
    return parts;
}

}  // namespace granary::test::ptx

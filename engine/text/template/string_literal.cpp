// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/template/string_literal.h"

#include "engine/text/template/unicode.h"

namespace granary::jinja {

namespace {

int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

}  // namespace

tl::expected<std::string, std::string> unescape(std::string_view body) {
    std::string out;
    out.reserve(body.size());
    for (size_t i = 0; i < body.size();) {
        if (body[i] != '\\') {
            out += body[i++];
            continue;
        }
        const char c = i + 1 < body.size() ? body[i + 1] : '\0';
        i += 2;
        switch (c) {
            case '\n':
                break;  // the line goes on
            case '\\':
                out += '\\';
                break;
            case '\'':
                out += '\'';
                break;
            case '"':
                out += '"';
                break;
            case 'a':
                out += '\a';
                break;
            case 'b':
                out += '\b';
                break;
            case 'f':
                out += '\f';
                break;
            case 'n':
                out += '\n';
                break;
            case 'r':
                out += '\r';
                break;
            case 't':
                out += '\t';
                break;
            case 'v':
                out += '\v';
                break;
            case 'x':
            case 'u':
            case 'U': {
                const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
                char32_t value = 0;
                for (size_t d = 0; d < digits; ++d, ++i) {
                    const int v = i < body.size() ? hex_value(body[i]) : -1;
                    if (v < 0) {
                        return tl::unexpected(std::string("escape \\") + c + " needs " +
                                              std::to_string(digits) + " hexadecimal digits");
                    }
                    value = value * 16 + static_cast<char32_t>(v);
                }
                if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
                    return tl::unexpected(std::string("escape \\") + c + " names no character");
                }
                append_utf8(out, value);
                break;
            }
            case 'N':
                return tl::unexpected(std::string("escape \\N{name} is not supported"));
            default:
                if (c >= '0' && c <= '7') {
                    char32_t value = static_cast<char32_t>(c - '0');
                    for (int d = 0; d < 2 && i < body.size() && body[i] >= '0' && body[i] <= '7';
                         ++d, ++i) {
                        value = value * 8 + static_cast<char32_t>(body[i] - '0');
                    }
                    append_utf8(out, value);
                } else {  // an unknown escape stands for itself
                    out += '\\';
                    --i;
                }
        }
    }
    return out;
}

}  // namespace granary::jinja

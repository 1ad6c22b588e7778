// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/gguf/printable.h"

#include <cstdint>
#include <cstdio>

#include "engine/text/utf8.h"

namespace granary::gguf {
namespace {

// Controls, and what changes the order or the lines of the text around it.
bool unsafe(char32_t code) {
    return code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x61c || code == 0x200e ||
           code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
}

void append(std::string& out, const char* format, uint32_t number) {
    char buffer[16];
    std::snprintf(buffer, sizeof buffer, format, number);
    out += buffer;
}

std::string escape(std::string_view input, size_t limit, bool quotes) {
    std::string out;
    for (size_t i = 0; i < input.size();) {
        const text::Utf8Step step = text::utf8_step(input.substr(i));
        const bool valid = step.kind == text::Utf8Step::Kind::character;
        const std::string_view bytes = input.substr(i, valid ? step.bytes : 1);
        if (i + bytes.size() > limit) return out + "...";
        const char32_t code = valid ? text::code_point(bytes) : 0;
        if (!valid) {
            append(out, "\\x%02x", static_cast<uint8_t>(bytes[0]));
        } else if (code == '\n') {
            out += "\\n";
        } else if (code == '\t') {
            out += "\\t";
        } else if (code == '\r') {
            out += "\\r";
        } else if (code == '\\' || (quotes && code == '"')) {
            out += '\\';
            out += bytes;
        } else if (unsafe(code)) {
            append(out, "\\u{%x}", static_cast<uint32_t>(code));
        } else {
            out += bytes;
        }
        i += bytes.size();
    }
    return out;
}

}  // namespace

std::string printable(std::string_view text, size_t limit) {
    return escape(text, limit, false);
}

std::string quoted(std::string_view text, size_t limit) {
    return '"' + escape(text, limit, true) + '"';
}

}  // namespace granary::gguf

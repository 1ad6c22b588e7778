// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/gguf/printable.h"

#include <cstdint>
#include <cstdio>

namespace granary::gguf {
namespace {

struct Character {
    uint32_t code = 0;
    size_t bytes = 0;  // 0: no valid UTF-8 here
};

// Strict UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF.
Character decode(std::string_view text) {
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
    const uint8_t lead = byte(0);
    if (lead < 0x80) return {lead, 1};
    size_t bytes = 0;
    uint32_t code = 0;
    uint32_t least = 0;
    if (lead >= 0xc2 && lead <= 0xdf) {
        bytes = 2, code = lead & 0x1fu, least = 0x80;
    } else if (lead >= 0xe0 && lead <= 0xef) {
        bytes = 3, code = lead & 0x0fu, least = 0x800;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
        bytes = 4, code = lead & 0x07u, least = 0x10000;
    }
    if (bytes == 0 || text.size() < bytes) return {};
    for (size_t i = 1; i < bytes; ++i) {
        if ((byte(i) & 0xc0u) != 0x80u) return {};
        code = code << 6 | (byte(i) & 0x3fu);
    }
    if (code < least || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {};
    return {code, bytes};
}

bool unsafe(uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x61c || code == 0x200e ||
           code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
}

void append(std::string& out, const char* format, uint32_t number) {
    char buffer[16];
    std::snprintf(buffer, sizeof buffer, format, number);
    out += buffer;
}

std::string escape(std::string_view text, size_t limit, bool quotes) {
    std::string out;
    for (size_t i = 0; i < text.size();) {
        const Character next = decode(text.substr(i));
        const size_t bytes = next.bytes == 0 ? 1 : next.bytes;
        if (i + bytes > limit) return out + "...";
        if (next.bytes == 0) {
            append(out, "\\x%02x", static_cast<uint8_t>(text[i]));
        } else if (next.code == '\n') {
            out += "\\n";
        } else if (next.code == '\t') {
            out += "\\t";
        } else if (next.code == '\r') {
            out += "\\r";
        } else if (next.code == '\\' || (quotes && next.code == '"')) {
            out += '\\';
            out += static_cast<char>(next.code);
        } else if (unsafe(next.code)) {
            append(out, "\\u{%x}", next.code);
        } else {
            out += text.substr(i, bytes);
        }
        i += bytes;
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

// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/utf8.h"

#include <cstring>

namespace granary::text {

char32_t code_point(std::string_view character) {
    const auto byte = [&](size_t i) {
        return static_cast<char32_t>(static_cast<uint8_t>(character[i]));
    };
    if (character.size() == 1) return byte(0);
    char32_t point = byte(0) & (0x7Fu >> character.size());
    for (size_t i = 1; i < character.size(); ++i) point = point << 6 | (byte(i) & 0x3F);
    return point;
}

void append_utf8(char32_t point, std::string& text) {
    const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
    if (point < 0x80) {
        put(point);
        return;
    }
    if (point < 0x800) {
        put(0xC0 | point >> 6);
    } else {
        if (point < 0x10000) {
            put(0xE0 | point >> 12);
        } else {
            put(0xF0 | point >> 18);
            put(0x80 | (point >> 12 & 0x3F));
        }
        put(0x80 | (point >> 6 & 0x3F));
    }
    put(0x80 | (point & 0x3F));
}

size_t valid_utf8_prefix(std::string_view text) {
    size_t at = 0;
    while (at < text.size()) {
        uint64_t eight = 0;
        if (text.size() - at >= sizeof eight) {
            std::memcpy(&eight, text.data() + at, sizeof eight);
            if ((eight & 0x8080808080808080u) == 0) {
                at += sizeof eight;
                continue;
            }
        }
        const Utf8Step step = utf8_step(text.substr(at));
        if (step.kind != Utf8Step::Kind::character) break;
        at += step.bytes;
    }
    return at;
}

}  // namespace granary::text

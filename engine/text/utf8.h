// SPDX-License-Identifier: GPL-3.0-or-later
// One step through bytes that should be UTF-8, and may be anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace granary::text {

struct Utf8Step {
    enum class Kind : uint8_t {
        character,   // a whole character of `bytes` bytes
        incomplete,  // the text ends inside what may be a character; `bytes` is all that is left
        invalid,     // `bytes` bytes that no continuation can make a character
    };
    Kind kind;
    uint8_t bytes;
};

// What the front of `text` (not empty) is. Well-formed sequences and the extent of an ill-formed
// one (the "maximal subpart") are those of The Unicode Standard, table 3-7 and section 3.9.
inline Utf8Step utf8_step(std::string_view text) {
    using Kind = Utf8Step::Kind;
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
    const uint8_t lead = byte(0);
    if (lead < 0x80) return {Kind::character, 1};
    if (lead < 0xC2 || lead > 0xF4) return {Kind::invalid, 1};
    const uint8_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    // Only the second byte has bounds of its own: they shut out overlong forms, surrogates and
    // numbers above U+10FFFF.
    const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    for (uint8_t i = 1; i < length; ++i) {
        if (i == text.size()) return {Kind::incomplete, i};
        const bool fits = i == 1 ? byte(1) >= low && byte(1) <= high : (byte(i) & 0xC0) == 0x80;
        if (!fits) return {Kind::invalid, i};
    }
    return {Kind::character, length};
}

// The number of a whole character, as utf8_step found it.
char32_t code_point(std::string_view character);

void append_utf8(char32_t code_point, std::string& text);

// Bytes of the longest prefix of `text` that is well-formed UTF-8.
size_t valid_utf8_prefix(std::string_view text);

}  // namespace granary::text

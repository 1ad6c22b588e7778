// SPDX-License-Identifier: GPL-3.0-or-later
// Upper, lower and title case of text, with the characters that become several
// (SpecialCasing.txt of the Unicode Character Database, its unconditional entries).
#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "engine/text/template/unicode.h"

namespace granary::jinja {

namespace {

struct Expansion {
    char32_t from;
    std::array<char32_t, 3> upper;  // 0: no further character
};

constexpr char32_t kIota = 0x399;       // capital letter
constexpr char32_t kIotaBelow = 0x345;  // combining

// Without U+1F80..U+1FAF, which iota_block computes.
constexpr Expansion kExpansions[] = {
    {0xDF, {'S', 'S'}},
    {0x149, {0x2BC, 'N'}},
    {0x1F0, {'J', 0x30C}},
    {0x390, {0x399, 0x308, 0x301}},
    {0x3B0, {0x3A5, 0x308, 0x301}},
    {0x587, {0x535, 0x552}},
    {0x1E96, {'H', 0x331}},
    {0x1E97, {'T', 0x308}},
    {0x1E98, {'W', 0x30A}},
    {0x1E99, {'Y', 0x30A}},
    {0x1E9A, {'A', 0x2BE}},
    {0x1F50, {0x3A5, 0x313}},
    {0x1F52, {0x3A5, 0x313, 0x300}},
    {0x1F54, {0x3A5, 0x313, 0x301}},
    {0x1F56, {0x3A5, 0x313, 0x342}},
    {0x1FB2, {0x1FBA, kIota}},
    {0x1FB3, {0x391, kIota}},
    {0x1FB4, {0x386, kIota}},
    {0x1FB6, {0x391, 0x342}},
    {0x1FB7, {0x391, 0x342, kIota}},
    {0x1FBC, {0x391, kIota}},
    {0x1FC2, {0x1FCA, kIota}},
    {0x1FC3, {0x397, kIota}},
    {0x1FC4, {0x389, kIota}},
    {0x1FC6, {0x397, 0x342}},
    {0x1FC7, {0x397, 0x342, kIota}},
    {0x1FCC, {0x397, kIota}},
    {0x1FD2, {0x399, 0x308, 0x300}},
    {0x1FD3, {0x399, 0x308, 0x301}},
    {0x1FD6, {0x399, 0x342}},
    {0x1FD7, {0x399, 0x308, 0x342}},
    {0x1FE2, {0x3A5, 0x308, 0x300}},
    {0x1FE3, {0x3A5, 0x308, 0x301}},
    {0x1FE4, {0x3A1, 0x313}},
    {0x1FE6, {0x3A5, 0x342}},
    {0x1FE7, {0x3A5, 0x308, 0x342}},
    {0x1FF2, {0x1FFA, kIota}},
    {0x1FF3, {0x3A9, kIota}},
    {0x1FF4, {0x38F, kIota}},
    {0x1FF6, {0x3A9, 0x342}},
    {0x1FF7, {0x3A9, 0x342, kIota}},
    {0x1FFC, {0x3A9, kIota}},
    {0xFB00, {'F', 'F'}},
    {0xFB01, {'F', 'I'}},
    {0xFB02, {'F', 'L'}},
    {0xFB03, {'F', 'F', 'I'}},
    {0xFB04, {'F', 'F', 'L'}},
    {0xFB05, {'S', 'T'}},
    {0xFB06, {'S', 'T'}},
    {0xFB13, {0x544, 0x546}},
    {0xFB14, {0x544, 0x535}},
    {0xFB15, {0x544, 0x53B}},
    {0xFB16, {0x54E, 0x546}},
    {0xFB17, {0x544, 0x53D}},
};

const Expansion* expansion(char32_t c) {
    if (c < 0xDF) return nullptr;
    const auto* found =
        std::lower_bound(std::begin(kExpansions), std::end(kExpansions), c,
                         [](const Expansion& e, char32_t value) { return e.from < value; });
    return found != std::end(kExpansions) && found->from == c ? found : nullptr;
}

char32_t simple_lower(char32_t c) {
    return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

bool in_iota_block(char32_t c) {
    return c >= 0x1F80 && c <= 0x1FAF;
}

void append_upper(std::string& out, char32_t c) {
    if (in_iota_block(c)) {
        const char32_t row = c < 0x1F90 ? 0x1F08 : c < 0x1FA0 ? 0x1F28 : 0x1F68;
        append_utf8(out, row + (c & 7));
        append_utf8(out, kIota);
    } else if (const Expansion* e = expansion(c)) {
        for (const char32_t u : e->upper) {
            if (u != 0) append_utf8(out, u);
        }
    } else {
        append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
    }
}

void append_title(std::string& out, char32_t c) {
    const Expansion* e = expansion(c);
    const bool one_character =
        c == 0x1FB3 || c == 0x1FBC || c == 0x1FC3 || c == 0x1FCC || c == 0x1FF3 || c == 0x1FFC;
    if (e == nullptr || one_character) {
        append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
        return;
    }
    bool begun = false;  // the first letter has title case, the others have lower case
    for (const char32_t u : e->upper) {
        if (u != 0) append_utf8(out, !begun ? u : u == kIota ? kIotaBelow : simple_lower(u));
        begun |= is_upper(u);
    }
}

bool ignored_by_case(char32_t c) {
    switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_ME:
        case UTF8PROC_CATEGORY_CF:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_SK:
            return true;
        default:
            return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2018 || c == 0x2019 ||
                   c == 0x2024 || c == 0x2027;
    }
}

// The Final_Sigma condition: behind a cased letter and not in front of one.
bool sigma_is_final(std::string_view text, size_t begin, size_t end) {
    bool after_letter = false;
    while (begin > 0) {
        const char32_t c = decode_before(text, begin);
        if (ignored_by_case(c)) continue;
        after_letter = is_cased(c);
        break;
    }
    if (!after_letter) return false;
    while (end < text.size()) {
        const char32_t c = decode(text, end);
        if (!ignored_by_case(c)) return !is_cased(c);
    }
    return true;
}

// Lower case of the character at [begin, end) of text.
void append_lower(std::string& out, std::string_view text, size_t begin, size_t end, char32_t c) {
    if (c == 0x130) {
        append_utf8(out, 'i');
        append_utf8(out, 0x307);
    } else if (c == 0x3A3) {
        append_utf8(out, sigma_is_final(text, begin, end) ? 0x3C2 : 0x3C3);
    } else {
        append_utf8(out, simple_lower(c));
    }
}

template <class Append>
std::string map_characters(std::string_view text, Append append) {
    std::string out;
    out.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
        const size_t begin = at;
        const char32_t c = decode(text, at);
        append(out, c, begin, at);
    }
    return out;
}

}  // namespace

std::string upper(std::string_view text) {
    return map_characters(
        text, [](std::string& out, char32_t c, size_t, size_t) { append_upper(out, c); });
}

std::string lower(std::string_view text) {
    return map_characters(text, [text](std::string& out, char32_t c, size_t begin, size_t end) {
        append_lower(out, text, begin, end, c);
    });
}

std::string casefold(std::string_view text) {
    return map_characters(text, [](std::string& out, char32_t c, size_t, size_t) {
        utf8proc_int32_t folded[8];
        int boundary = 0;
        const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 8,
                                                   UTF8PROC_CASEFOLD, &boundary);
        for (utf8proc_ssize_t i = 0; i < count; ++i) {
            append_utf8(out, static_cast<char32_t>(folded[i]));
        }
    });
}

std::string capitalize(std::string_view text) {
    return map_characters(text, [text](std::string& out, char32_t c, size_t begin, size_t end) {
        if (begin == 0) return append_title(out, c);
        append_lower(out, text, begin, end, c);
    });
}

std::string title(std::string_view text) {
    bool inside_word = false;
    return map_characters(text, [&](std::string& out, char32_t c, size_t begin, size_t end) {
        if (inside_word) {
            append_lower(out, text, begin, end, c);
        } else {
            append_title(out, c);
        }
        inside_word = is_cased(c);
    });
}

std::string swapcase(std::string_view text) {
    return map_characters(text, [text](std::string& out, char32_t c, size_t begin, size_t end) {
        if (is_upper(c)) return append_lower(out, text, begin, end, c);
        if (is_lower(c)) return append_upper(out, c);
        append_utf8(out, c);
    });
}

}  // namespace granary::jinja

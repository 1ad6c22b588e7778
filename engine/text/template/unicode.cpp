// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/template/unicode.h"

#include <utf8proc.h>

#include <algorithm>

namespace granary::jinja {

namespace {

bool within(char32_t c, char32_t first, char32_t last) {
    return c >= first && c <= last;
}

utf8proc_category_t category(char32_t c) {
    return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool continues(char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

}  // namespace

size_t invalid_utf8(std::string_view text) {
    size_t at = 0;
    while (at < text.size()) {
        const auto lead = static_cast<unsigned char>(text[at]);
        if (lead < 0x80) {
            ++at;
            continue;
        }
        const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
        if (lead < 0xC2 || lead > 0xF4 || at + length > text.size()) return at;
        char32_t c = lead & (0x7F >> length);
        for (size_t i = 1; i < length; ++i) {
            if (!continues(text[at + i])) return at;
            c = (c << 6) | (static_cast<unsigned char>(text[at + i]) & 0x3F);
        }
        const bool overlong = (length == 3 && c < 0x800) || (length == 4 && c < 0x10000);
        if (overlong || within(c, 0xD800, 0xDFFF) || c > 0x10FFFF) return at;
        at += length;
    }
    return std::string_view::npos;
}

char32_t decode(std::string_view text, size_t& at) {
    const auto lead = static_cast<unsigned char>(text[at++]);
    if (lead < 0x80) return lead;
    const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    char32_t c = lead & (0x3F >> more);
    for (int i = 0; i < more && at < text.size(); ++i) {
        c = (c << 6) | (static_cast<unsigned char>(text[at++]) & 0x3F);
    }
    return c;
}

char32_t decode_before(std::string_view text, size_t& at) {
    do {
        --at;
    } while (at > 0 && continues(text[at]));
    size_t forward = at;
    return decode(text, forward);
}

void append_utf8(std::string& out, char32_t c) {
    if (c < 0x80) {
        out += static_cast<char>(c);
    } else if (c < 0x800) {
        out += static_cast<char>(0xC0 | (c >> 6));
        out += static_cast<char>(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        out += static_cast<char>(0xE0 | (c >> 12));
        out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
        out += static_cast<char>(0x80 | (c & 0x3F));
    } else {
        out += static_cast<char>(0xF0 | (c >> 18));
        out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
        out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
        out += static_cast<char>(0x80 | (c & 0x3F));
    }
}

size_t count_characters(std::string_view text) {
    return text.size() - static_cast<size_t>(std::count_if(text.begin(), text.end(), continues));
}

size_t offset_of(std::string_view text, size_t character) {
    size_t at = 0;
    while (at < text.size() && character > 0) {
        ++at;
        while (at < text.size() && continues(text[at])) ++at;
        --character;
    }
    return at;
}

bool is_space(char32_t c) {
    return within(c, 9, 13) || within(c, 28, 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           within(c, 0x2000, 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
           c == 0x3000;
}

bool is_alpha(char32_t c) {
    const auto k = category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) {
    return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(char32_t c) {
    // Characters of Numeric_Type=Digit: superscripts, subscripts and digits in circles.
    static constexpr char32_t ranges[][2] = {
        {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
        {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
        {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
        {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
        {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
    if (is_decimal(c)) return true;
    return std::any_of(std::begin(ranges), std::end(ranges),
                       [c](const char32_t(&r)[2]) { return within(c, r[0], r[1]); });
}

bool is_upper(char32_t c) {
    return category(c) == UTF8PROC_CATEGORY_LU || within(c, 0x2160, 0x216F) ||
           within(c, 0x24B6, 0x24CF) || within(c, 0x1F130, 0x1F149) ||
           within(c, 0x1F150, 0x1F169) || within(c, 0x1F170, 0x1F189);
}

bool is_lower(char32_t c) {
    return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA ||
           within(c, 0x2B0, 0x2B8) || within(c, 0x2C0, 0x2C1) || within(c, 0x2E0, 0x2E4) ||
           c == 0x345 || c == 0x37A || within(c, 0x1D2C, 0x1D6A) || c == 0x1D78 ||
           within(c, 0x1D9B, 0x1DBF) || c == 0x2071 || c == 0x207F || within(c, 0x2090, 0x209C) ||
           within(c, 0x2170, 0x217F) || within(c, 0x24D0, 0x24E9) || within(c, 0x2C7C, 0x2C7D) ||
           within(c, 0xA69C, 0xA69D) || c == 0xA770 || within(c, 0xA7F8, 0xA7F9) ||
           within(c, 0xAB5C, 0xAB5F) || c == 0x10780 || within(c, 0x10783, 0x10785) ||
           within(c, 0x10787, 0x107B0) || within(c, 0x107B2, 0x107BA);
}

bool is_title(char32_t c) {
    return category(c) == UTF8PROC_CATEGORY_LT;
}

bool is_cased(char32_t c) {
    return is_upper(c) || is_lower(c) || is_title(c);
}

bool is_printable(char32_t c) {
    switch (category(c)) {
        case UTF8PROC_CATEGORY_CC:
        case UTF8PROC_CATEGORY_CF:
        case UTF8PROC_CATEGORY_CS:
        case UTF8PROC_CATEGORY_CO:
        case UTF8PROC_CATEGORY_CN:
        case UTF8PROC_CATEGORY_ZL:
        case UTF8PROC_CATEGORY_ZP:
            return false;
        case UTF8PROC_CATEGORY_ZS:
            return c == ' ';
        default:
            return true;
    }
}

bool is_word(char32_t c) {
    const auto k = category(c);
    return c == '_' || is_alpha(c) || k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL ||
           k == UTF8PROC_CATEGORY_NO;
}

bool starts_name(char32_t c) {
    return c == '_' || is_alpha(c) || category(c) == UTF8PROC_CATEGORY_NL;
}

bool continues_name(char32_t c) {
    const auto k = category(c);
    return starts_name(c) || k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_MN ||
           k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_PC;
}

std::string_view strip_left(std::string_view text) {
    size_t at = 0;
    while (at < text.size()) {
        size_t next = at;
        if (!is_space(decode(text, next))) break;
        at = next;
    }
    return text.substr(at);
}

std::string_view strip_right(std::string_view text) {
    size_t end = text.size();
    while (end > 0) {
        size_t before = end;
        if (!is_space(decode_before(text, before))) break;
        end = before;
    }
    return text.substr(0, end);
}

}  // namespace granary::jinja

// SPDX-License-Identifier: GPL-3.0-or-later
// Text as Python sees it: code points, their classes and cases. Everything but invalid_utf8
// expects valid UTF-8, which is checked once where text enters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace granary::jinja {

// Offset of the first byte that is no UTF-8; npos if there is none.
size_t invalid_utf8(std::string_view text);

char32_t decode(std::string_view text, size_t& at);         // moves `at` behind the character
char32_t decode_before(std::string_view text, size_t& at);  // moves `at` in front of it
void append_utf8(std::string& out, char32_t c);
size_t count_characters(std::string_view text);
size_t offset_of(std::string_view text, size_t character);  // size() if beyond the end

// As str.isspace, .isalpha, .isdecimal, .isdigit, .isupper, .islower, .isprintable of one
// character; is_title also counts title case digraphs.
bool is_space(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
bool is_cased(char32_t c);
bool is_printable(char32_t c);
bool is_word(char32_t c);  // \w of Python's re
bool starts_name(char32_t c);
bool continues_name(char32_t c);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string casefold(std::string_view text);
std::string capitalize(std::string_view text);  // first character to title case, others to lower
std::string title(std::string_view text);       // as str.title: after every uncased character
std::string swapcase(std::string_view text);

std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);

}  // namespace granary::jinja

// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/template/format_spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "engine/text/template/numbers.h"
#include "engine/text/template/text_form.h"
#include "engine/text/template/unicode.h"

namespace granary::jinja {

namespace {

constexpr int64_t kMaxPrecision = 400;  // digits behind the point; a double has fewer

std::string group_thousands(std::string digits) {
    const size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
    for (size_t i = end; i > 3;) {
        i -= 3;
        digits.insert(i, ",");
    }
    return digits;
}

std::string real_digits(double value, char type, int64_t precision, bool alternate) {
    if (std::isnan(value) || std::isinf(value)) {
        const std::string text = std::isnan(value) ? "nan" : "inf";
        return type == 'F' || type == 'E' || type == 'G' ? upper(text) : text;
    }
    const std::string pattern = std::string("%") + (alternate ? "#" : "") + ".*" + type;
    const auto places = static_cast<int>(precision);
    std::string out(static_cast<size_t>(std::snprintf(nullptr, 0, pattern.c_str(), places, value)),
                    '\0');
    std::snprintf(out.data(), out.size() + 1, pattern.c_str(), places, value);
    return out;
}

// Digits of a number without its sign.
std::string number_digits(const Value& value, FormatSpec& spec) {
    if (spec.precision > kMaxPrecision) stop("a format asks for too many digits");
    const bool whole = value.as<double>() == nullptr;
    const char type = spec.type;
    if (whole &&
        (type == '\0' || type == 'd' || type == 'x' || type == 'X' || type == 'o' || type == 'b')) {
        uint64_t magnitude = 0;
        if (const auto* u = value.as<uint64_t>()) {
            magnitude = *u;
        } else {
            const int64_t i = *as_integer(value);
            magnitude = i < 0 ? 0 - static_cast<uint64_t>(i) : static_cast<uint64_t>(i);
        }
        const int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
        char buffer[72];
        const auto r = std::to_chars(buffer, buffer + sizeof buffer, magnitude, base);
        std::string digits(buffer, r.ptr);
        if (type == 'X') digits = upper(digits);
        if (spec.comma) digits = group_thousands(digits);
        if (spec.alternate && base != 10) digits = std::string("0") + type + digits;
        return digits;
    }
    const double magnitude = std::fabs(as_real(value));
    std::string digits;
    switch (type) {
        case 'e':
        case 'E':
        case 'f':
        case 'F':
        case 'g':
        case 'G':
            digits = real_digits(magnitude, type, spec.precision < 0 ? 6 : spec.precision,
                                 spec.alternate);
            break;
        case '%':
            digits =
                real_digits(magnitude * 100, 'f', spec.precision < 0 ? 6 : spec.precision, false) +
                "%";
            break;
        case '\0':
            if (spec.precision < 0) {
                digits = real_text(magnitude);
                break;
            }
            digits = real_digits(magnitude, 'g', std::max<int64_t>(spec.precision, 1), false);
            if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
            break;
        default:
            stop(std::string("unknown format code '") + type + "' for an object of type '" +
                 type_name(value) + "'");
    }
    return spec.comma ? group_thousands(std::move(digits)) : digits;
}

bool is_negative(const Value& value) {
    if (const auto* d = value.as<double>()) return std::signbit(*d) && !std::isnan(*d);
    const auto i = as_integer(value);
    return i && *i < 0;
}

}  // namespace

void append_padded(TextBuilder& out, std::string_view sign, std::string_view body,
                   const FormatSpec& spec, char fallback_align) {
    const auto used = static_cast<int64_t>(count_characters(body) + sign.size());
    const int64_t space = std::max<int64_t>(spec.width - used, 0);
    const char align = spec.align != '\0' ? spec.align : fallback_align;
    const int64_t before = align == '>' || align == '=' ? space : align == '^' ? space / 2 : 0;
    if (align == '=') out << sign;
    out.repeat(spec.fill, before);
    if (align != '=') out << sign;
    out << body;
    out.repeat(spec.fill, space - before);
}

void append_formatted(TextBuilder& out, const Value& value, FormatSpec spec) {
    if (value.is_number() && !(value.as<bool>() != nullptr && spec.type == '\0' &&
                               spec.width == 0 && spec.align == '\0')) {
        if (spec.zero && spec.align == '\0') {
            spec.fill = "0";
            spec.align = '=';
        }
        if (spec.type == 'n') spec.type = value.as<double>() != nullptr ? 'g' : 'd';
        const std::string digits = number_digits(value, spec);
        const bool negative = is_negative(value);
        const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
        append_padded(out, sign, digits, spec, '>');
        return;
    }
    if (spec.type != '\0' && spec.type != 's') {
        refuse_absent(value);
        stop(std::string("unknown format code '") + spec.type + "' for an object of type '" +
             type_name(value) + "'");
    }
    std::string text = to_text(out.workspace(), value);
    if (spec.precision >= 0) text.resize(offset_of(text, static_cast<size_t>(spec.precision)));
    if (spec.zero && spec.align == '\0') spec.fill = "0";
    append_padded(out, "", text, spec, '<');
}

int64_t read_number(std::string_view text, size_t& at) {
    int64_t value = -1;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
        value = std::max<int64_t>(value, 0) * 10 + (text[at++] - '0');
        if (value > INT32_MAX) stop("a format asks for too large a number");
    }
    return value;
}

FormatSpec read_spec(std::string_view text) {
    FormatSpec spec;
    size_t at = 0;
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    if (!text.empty()) {
        size_t next = 0;
        decode(text, next);
        if (next < text.size() && is_align(text[next])) {
            spec.fill = text.substr(0, next);
            spec.align = text[next];
            at = next + 1;
        } else if (is_align(text[0])) {
            spec.align = text[0];
            at = 1;
        }
    }
    const auto skip = [&](char c) {
        return at < text.size() && text[at] == c ? (++at, true) : false;
    };
    if (skip('+'))
        spec.sign = '+';
    else if (skip(' '))
        spec.sign = ' ';
    else
        skip('-');
    spec.alternate = skip('#');
    spec.zero = skip('0');
    spec.width = std::max<int64_t>(read_number(text, at), 0);
    spec.comma = skip(',');
    if (skip('.')) {
        spec.precision = read_number(text, at);
        if (spec.precision < 0) stop("a format lacks its precision");
    }
    if (at < text.size()) spec.type = text[at++];
    if (at < text.size()) stop("invalid format specifier '" + std::string(text) + "'");
    return spec;
}

}  // namespace granary::jinja

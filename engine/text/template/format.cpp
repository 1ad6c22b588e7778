// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/template/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "engine/text/template/markup.h"
#include "engine/text/template/numbers.h"
#include "engine/text/template/operators.h"
#include "engine/text/template/text_form.h"
#include "engine/text/template/unicode.h"
#include "engine/text/template/workspace.h"

namespace granary::jinja {

namespace {

constexpr int64_t kMaxPrecision = 400;  // digits behind the point; a double has fewer

struct Spec {
    std::string fill = " ";
    char align = '\0';  // < > ^ =
    char sign = '-';
    bool alternate = false;
    bool zero = false;
    bool comma = false;
    int64_t width = 0;
    int64_t precision = -1;
    char type = '\0';
};

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
std::string number_digits(const Value& value, Spec& spec) {
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

void append_padded(TextBuilder& out, std::string_view sign, std::string_view body, const Spec& spec,
                   char fallback_align) {
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

void append_formatted(TextBuilder& out, const Value& value, Spec spec) {
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

std::string escaped(Workspace& workspace, std::string_view text) {
    TextBuilder out(workspace);
    append_escaped(out, text);
    return out.take();
}

// Decimal digits at `at`; -1 if there are none.
int64_t read_number(std::string_view text, size_t& at) {
    int64_t value = -1;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
        value = std::max<int64_t>(value, 0) * 10 + (text[at++] - '0');
        if (value > INT32_MAX) stop("a format asks for too large a number");
    }
    return value;
}

Spec read_spec(std::string_view text) {
    Spec spec;
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

}  // namespace

Value percent_format(Workspace& workspace, const Text& format, const Value& values) {
    TextBuilder out(workspace);
    const Sequence* tuple = values.sequence();
    if (tuple != nullptr && tuple->flavor != Sequence::Flavor::tuple) tuple = nullptr;
    size_t used = 0;
    const auto next_value = [&]() -> const Value& {
        if (tuple != nullptr) {
            if (used >= tuple->items.size()) stop("not enough arguments for format string");
            return tuple->items[used++];
        }
        if (used++ > 0) stop("not enough arguments for format string");
        return values;
    };
    const auto next_number = [&](std::string_view text, size_t& at) -> int64_t {
        if (at >= text.size() || text[at] != '*') return read_number(text, at);
        ++at;
        const auto i = as_integer(next_value());
        if (!i) stop("* wants int");
        return *i;
    };
    const std::string_view text = format.bytes;
    bool named = false;
    for (size_t at = 0; at < text.size();) {
        const size_t percent = std::min(text.find('%', at), text.size());
        out << text.substr(at, percent - at);
        at = percent + 1;
        if (percent == text.size()) break;
        const Value* value = nullptr;
        if (at < text.size() && text[at] == '(') {
            const size_t close = text.find(')', at);
            if (close == std::string_view::npos) stop("incomplete format key");
            const Mapping* mapping = values.mapping();
            if (mapping == nullptr) stop("format requires a mapping");
            const std::string_view key = text.substr(at + 1, close - at - 1);
            value = mapping->find(key);
            if (value == nullptr) stop("'" + std::string(key) + "'");
            at = close + 1;
            named = true;
        }
        Spec spec;
        for (; at < text.size(); ++at) {
            const char c = text[at];
            if (c == '-')
                spec.align = '<';
            else if (c == '+' || (c == ' ' && spec.sign != '+'))
                spec.sign = c;
            else if (c == '#')
                spec.alternate = true;
            else if (c == '0')
                spec.zero = true;
            else if (c != ' ')
                break;
        }
        spec.width = next_number(text, at);
        if (spec.width < -1) {
            spec.align = '<';
            spec.width = -spec.width;
        }
        spec.width = std::max<int64_t>(spec.width, 0);
        if (at < text.size() && text[at] == '.') {
            ++at;
            spec.precision = std::max<int64_t>(next_number(text, at), 0);
        }
        if (at >= text.size()) stop("incomplete format");
        spec.type = text[at++];
        if (spec.type == '%') {
            out << '%';
            continue;
        }
        if (value == nullptr) value = &next_value();
        switch (spec.type) {
            case 's':
            case 'r': {
                TextBuilder part(workspace);
                if (spec.type == 'r') {
                    append_repr(part, *value);
                } else {
                    append_text(part, *value);
                }
                std::string bytes = part.take();
                if (format.markup && (value->text() == nullptr || !value->text()->markup)) {
                    bytes = escaped(workspace, bytes);
                }
                if (spec.precision >= 0) {
                    bytes.resize(offset_of(bytes, static_cast<size_t>(spec.precision)));
                }
                append_padded(out, "", bytes, spec, '>');
                break;
            }
            case 'c': {
                std::string character;
                if (const Text* t = value->text(); t && count_characters(t->bytes) == 1) {
                    character = t->bytes;
                } else if (const auto code = as_integer(*value);
                           code && *code >= 0 && *code <= 0x10FFFF &&
                           (*code < 0xD800 || *code > 0xDFFF)) {
                    append_utf8(character, static_cast<char32_t>(*code));
                } else {
                    stop("%c requires an int in range(0x110000) or a single character");
                }
                append_padded(out, "", character, spec, '>');
                break;
            }
            case 'd':
            case 'i':
            case 'u': {
                refuse_absent(*value);
                if (!value->is_number()) {
                    stop(std::string("%") + spec.type + " format: a real number is required, not " +
                         type_name(*value));
                }
                Value whole = *value;
                if (const auto* d = value->as<double>()) {
                    if (!(std::fabs(*d) < 0x1p63)) stop("cannot convert float to integer");
                    whole = static_cast<int64_t>(*d);
                }
                spec.type = 'd';
                append_formatted(out, whole, spec);
                break;
            }
            case 'e':
            case 'E':
            case 'f':
            case 'F':
            case 'g':
            case 'G':
            case 'x':
            case 'X':
            case 'o':
                refuse_absent(*value);
                if (!value->is_number()) {
                    stop(std::string("%") + spec.type + " format: a number is required, not " +
                         type_name(*value));
                }
                append_formatted(out, *value, spec);
                break;
            default:
                stop(std::string("unsupported format character '") + spec.type + "'",
                     ErrorKind::unsupported);
        }
    }
    // Python lets values that have elements go unused, but no others.
    const bool has_elements =
        values.mapping() != nullptr || values.absence() != nullptr || is_list_or_tuple(values);
    if (tuple != nullptr ? used < tuple->items.size() : used == 0 && !named && !has_elements) {
        stop("not all arguments converted during string formatting");
    }
    return workspace.text(out.take(), format.markup);
}

Value brace_format(Workspace& workspace, const Text& format, const Arguments& arguments) {
    TextBuilder out(workspace);
    const std::string_view text = format.bytes;
    size_t automatic = 0;
    for (size_t at = 0; at < text.size();) {
        const size_t brace = std::min(text.find_first_of("{}", at), text.size());
        out << text.substr(at, brace - at);
        if (brace == text.size()) break;
        at = brace + 1;
        if (at < text.size() && text[at] == text[brace]) {
            out << text[at++];
            continue;
        }
        if (text[brace] == '}') stop("single '}' encountered in format string");
        const size_t close = text.find_first_of("{}", at);
        if (close == std::string_view::npos) stop("expected '}' before end of string");
        if (text[close] == '{') {
            stop("a format inside a format is not supported", ErrorKind::unsupported);
        }
        std::string_view field = text.substr(at, close - at);
        at = close + 1;
        std::string_view spec;
        if (const size_t colon = field.find(':'); colon != std::string_view::npos) {
            spec = field.substr(colon + 1);
            field = field.substr(0, colon);
        }
        char conversion = 's';
        const size_t mark = field.find('!');
        if (mark != std::string_view::npos) {
            if (mark + 2 != field.size() || (field[mark + 1] != 'r' && field[mark + 1] != 's')) {
                stop("unsupported conversion in a format", ErrorKind::unsupported);
            }
            conversion = field[mark + 1];
            field = field.substr(0, mark);
        }
        if (field.find_first_of(".[") != std::string_view::npos) {
            stop("attributes in a format are not supported", ErrorKind::unsupported);
        }
        size_t digits = 0;
        const int64_t index =
            field.empty() ? static_cast<int64_t>(automatic++) : read_number(field, digits);
        const Value* value = nullptr;
        if (field.empty() || digits == field.size()) {
            if (index >= static_cast<int64_t>(arguments.positional.size())) {
                stop("Replacement index " + std::to_string(index) +
                     " out of range for positional args tuple");
            }
            value = &arguments.positional[static_cast<size_t>(index)];
        } else {
            for (const auto& [key, v] : arguments.named) {
                if (key == field) value = &v;
            }
            if (value == nullptr) stop("'" + std::string(field) + "'");
        }
        Value converted = *value;
        if (conversion == 'r') {
            converted = workspace.text(repr(workspace, *value));
        } else if (mark != std::string_view::npos) {
            converted = workspace.text(to_text(workspace, *value));
        }
        TextBuilder part(workspace);
        append_formatted(part, converted, read_spec(spec));
        const bool plain = converted.text() == nullptr || !converted.text()->markup;
        out << (format.markup && plain ? escaped(workspace, part.take()) : part.take());
    }
    return workspace.text(out.take(), format.markup);
}

}  // namespace granary::jinja

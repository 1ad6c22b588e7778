// SPDX-License-Identifier: GPL-3.0-or-later
// abs, float, int, round.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "engine/text/template/arguments.h"
#include "engine/text/template/filters.h"
#include "engine/text/template/numbers.h"
#include "engine/text/template/operators.h"
#include "engine/text/template/unicode.h"
#include "engine/text/template/workspace.h"

namespace granary::jinja {

namespace {

// The text as float() and int() read it: blanks around it and single "_" between digits are fine.
std::optional<std::string> number_text(std::string_view text) {
    text = strip_left(strip_right(text));
    for (size_t at = 0; at < text.size();) {
        const char32_t c = decode(text, at);
        if (c >= 0x80 && is_decimal(c)) {
            stop("numbers in digits other than 0 to 9 are not supported", ErrorKind::unsupported);
        }
    }
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '_') {
            out += text[i];
            continue;
        }
        const auto word = [&](size_t at) {
            return at < text.size() && is_word(static_cast<unsigned char>(text[at])) &&
                   text[at] != '_' && static_cast<unsigned char>(text[at]) < 0x80;
        };
        if (i == 0 || !word(i - 1) || !word(i + 1)) return std::nullopt;
    }
    if (out.starts_with('+')) {
        out.erase(0, 1);
        if (out.starts_with('-')) return std::nullopt;
    }
    if (out.empty()) return std::nullopt;
    return out;
}

std::optional<double> real_of(const Value& value) {
    if (value.is_number()) return as_real(value);
    if (value.text() == nullptr) return std::nullopt;
    const auto text = number_text(value.text()->bytes);
    if (!text) return std::nullopt;
    double number = 0;
    const auto r = std::from_chars(text->data(), text->data() + text->size(), number);
    if (r.ptr != text->data() + text->size()) return std::nullopt;
    if (r.ec == std::errc::result_out_of_range) {  // too large or too small for a double
        const bool tiny =
            text->find("e-") != std::string::npos || text->find("E-") != std::string::npos;
        const double magnitude = tiny ? 0.0 : HUGE_VAL;
        return text->starts_with('-') ? -magnitude : magnitude;
    }
    if (r.ec != std::errc{}) return std::nullopt;
    return number;
}

std::optional<int64_t> truncated(double value) {
    if (!(std::fabs(value) < 0x1p63)) {
        if (std::isnan(value) || std::isinf(value)) return std::nullopt;
        stop("an integer of the template does not fit 64 bits", ErrorKind::unsupported);
    }
    return static_cast<int64_t>(value);
}

// int(text, base); base 0 reads the prefix.
std::optional<int64_t> integer_of(std::string_view source, int64_t base) {
    auto text = number_text(source);
    if (!text) return std::nullopt;
    const bool negative = text->starts_with('-');
    std::string digits = text->substr(negative ? 1 : 0);
    if (digits.size() > 2 && digits[0] == '0') {
        const char kind = static_cast<char>(digits[1] | 0x20);
        const int64_t prefix_base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
        if (prefix_base != 0 && (base == 0 || base == prefix_base)) {
            base = prefix_base;
            digits.erase(0, 2);
        }
    }
    if (base == 0) base = 10;
    if (base < 2 || base > 36) stop("int() base must be >= 2 and <= 36, or 0");
    if (digits.empty() || digits[0] == '-') return std::nullopt;
    if (negative) digits.insert(0, "-");
    int64_t value = 0;
    const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), value,
                                   static_cast<int>(base));
    if (r.ptr != digits.data() + digits.size()) return std::nullopt;
    if (r.ec == std::errc::result_out_of_range) {
        stop("an integer of the template does not fit 64 bits", ErrorKind::unsupported);
    }
    return value;
}

Value to_integer(Workspace&, const Value& input, const Arguments& arguments) {
    const Bound args("int", arguments, {"default", "base"});
    if (input.as<uint64_t>() != nullptr) return input;
    refuse_absent(input);
    std::optional<int64_t> value;
    if (const Text* text = input.text()) value = integer_of(text->bytes, args.integer(1, 10));
    if (!value) {
        if (const auto i = as_integer(input)) {
            value = i;
        } else if (const auto real = real_of(input)) {
            value = truncated(*real);
        }
    }
    if (value) return *value;
    return args.given(0) ? *args[0] : Value(int64_t{0});
}

Value to_real(Workspace&, const Value& input, const Arguments& arguments) {
    const Bound args("float", arguments, {"default"});
    refuse_absent(input);
    if (const auto real = real_of(input)) return *real;
    return args.given(0) ? *args[0] : Value(0.0);
}

Value absolute(Workspace& workspace, const Value& input, const Arguments& arguments) {
    Bound("abs", arguments, {});
    if (const auto* d = input.as<double>()) return std::fabs(*d);
    if (const auto i = as_integer(input)) {
        return *i < 0 ? negate(workspace, *i) : Value(*i);
    }
    if (input.is_number()) return input;
    refuse_absent(input);
    stop("bad operand type for abs(): '" + std::string(type_name(input)) + "'");
}

// Half to even of the exact decimal value, as Python's round.
double rounded(double value, int64_t places) {
    if (!std::isfinite(value) || places > 330) return value;
    if (places < -310) return std::copysign(0.0, value);
    if (places >= 0) {
        char buffer[800];
        const int size =
            std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(places), value);
        double result = value;
        std::from_chars(buffer, buffer + size, result);
        return result;
    }
    const double scale = std::pow(10.0, static_cast<double>(-places));
    return std::nearbyint(value / scale) * scale;
}

Value round(Workspace&, const Value& input, const Arguments& arguments) {
    const Bound args("round", arguments, {"precision", "method"});
    const int64_t places = args.integer(0, 0);
    const std::string_view method = args.text(1, "common");
    if (!input.is_number()) {
        refuse_absent(input);
        stop("type " + std::string(type_name(input)) + " doesn't define __round__ method");
    }
    if (method == "common") {
        if (const auto i = as_integer(input)) {
            if (places >= 0) return *i;
            return static_cast<int64_t>(rounded(static_cast<double>(*i), places));
        }
        if (input.as<uint64_t>() != nullptr) return input;
        return rounded(as_real(input), places);
    }
    if (method != "ceil" && method != "floor") stop("method must be common, ceil or floor");
    const double scale = std::pow(10.0, static_cast<double>(places));
    const double scaled = as_real(input) * scale;
    return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale;
}

constexpr std::pair<std::string_view, Filter> kFilters[] = {
    {"abs", absolute},
    {"float", to_real},
    {"int", to_integer},
    {"round", round},
};

}  // namespace

Filter find_number_filter(std::string_view name) {
    const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                     [name](const auto& filter) { return filter.first == name; });
    return found != std::end(kFilters) ? found->second : nullptr;
}

}  // namespace granary::jinja

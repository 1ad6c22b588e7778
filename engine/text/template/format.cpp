// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/template/format.h"

#include <algorithm>
#include <cmath>

#include "engine/text/template/format_spec.h"
#include "engine/text/template/markup.h"
#include "engine/text/template/numbers.h"
#include "engine/text/template/operators.h"
#include "engine/text/template/text_form.h"
#include "engine/text/template/unicode.h"
#include "engine/text/template/workspace.h"

namespace granary::jinja {

namespace {

std::string escaped(Workspace& workspace, std::string_view text) {
    TextBuilder out(workspace);
    append_escaped(out, text);
    return out.take();
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
        FormatSpec spec;
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

// SPDX-License-Identifier: GPL-3.0-or-later
// Filters whose result is text, and those about any single value.
#include <algorithm>

#include "engine/text/template/arguments.h"
#include "engine/text/template/filters.h"
#include "engine/text/template/format.h"
#include "engine/text/template/markup.h"
#include "engine/text/template/methods.h"
#include "engine/text/template/numbers.h"
#include "engine/text/template/operators.h"
#include "engine/text/template/text_form.h"
#include "engine/text/template/unicode.h"
#include "engine/text/template/workspace.h"

namespace granary::jinja {

void append_escaped(TextBuilder& out, std::string_view text) {
    for (size_t at = 0; at < text.size();) {
        const size_t special = std::min(text.find_first_of("&<>\"'", at), text.size());
        out << text.substr(at, special - at);
        if (special == text.size()) break;
        switch (text[special]) {
            case '&':
                out << "&amp;";
                break;
            case '<':
                out << "&lt;";
                break;
            case '>':
                out << "&gt;";
                break;
            case '"':
                out << "&#34;";
                break;
            default:
                out << "&#39;";
                break;
        }
        at = special + 1;
    }
}

namespace {

// The value if it is text, else its text.
Value soft_text(Workspace& workspace, const Value& value) {
    return value.text() != nullptr ? value : workspace.text(to_text(workspace, value));
}

using Casing = std::string (*)(std::string_view);

template <Casing Change>
Value change_case(Workspace& workspace, const Value& input, const Arguments& arguments) {
    Bound("filter", arguments, {});
    const Value text = soft_text(workspace, input);
    workspace.scan(text.text()->bytes.size() * 4);
    return workspace.text(Change(text.text()->bytes), text.text()->markup);
}

// Words begin after blanks and opening brackets, unlike those of str.title.
std::string title_words(std::string_view text) {
    std::string out;
    size_t at = 0;
    const auto divides = [](char32_t c) {
        return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    };
    while (at < text.size()) {
        const size_t begin = at;
        size_t first_end = begin;
        const bool divider = divides(decode(text, first_end));
        for (at = first_end; at < text.size();) {
            size_t next = at;
            if (divides(decode(text, next)) != divider) break;
            at = next;
        }
        out += upper(text.substr(begin, first_end - begin));
        out += lower(text.substr(first_end, at - first_end));
    }
    return out;
}

Value trim(Workspace& workspace, const Value& input, const Arguments& arguments) {
    const Bound args("trim", arguments, {"chars"});
    const Value text = soft_text(workspace, input);
    const std::string_view bytes = text.text()->bytes;
    workspace.touch(bytes.size());
    const std::string_view rest = args.given(0) && !args[0]->is_none()
                                      ? strip(bytes, args.text(0), true, true)
                                      : strip_left(strip_right(bytes));
    if (rest.size() == bytes.size()) return text;
    return workspace.text(std::string(rest), text.text()->markup);
}

Value to_json(Workspace& workspace, const Value& input, const Arguments& arguments) {
    const Bound args("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
    JsonStyle style;
    style.ensure_ascii = args.truth(0, false);
    style.sort_keys = args.truth(3, false);
    if (args.given(1) && !args[1]->is_none()) {
        if (const Text* text = args[1]->text()) {
            style.indent = 0;
            style.indent_text = text->bytes;
        } else {
            constexpr int64_t kWidest = 1000;
            style.indent = static_cast<int>(std::clamp<int64_t>(args.integer(1), 0, kWidest));
            style.indent_text = std::string(static_cast<size_t>(style.indent), ' ');
        }
        style.item_separator = ",";
    }
    if (args.given(2) && !args[2]->is_none()) {
        const std::vector<Value> pair = iterate(workspace, *args[2]);
        if (pair.size() != 2 || pair[0].text() == nullptr || pair[1].text() == nullptr) {
            stop("tojson: separators must be two strings");
        }
        style.item_separator = pair[0].text()->bytes;
        style.key_separator = pair[1].text()->bytes;
    }
    TextBuilder out(workspace);
    append_json(out, input, style);
    return workspace.text(out.take());
}

Value string(Workspace& workspace, const Value& input, const Arguments& arguments) {
    Bound("string", arguments, {});
    return soft_text(workspace, input);
}

Value safe(Workspace& workspace, const Value& input, const Arguments& arguments) {
    Bound("safe", arguments, {});
    return workspace.text(to_text(workspace, input), true);
}

template <bool Always>
Value escape(Workspace& workspace, const Value& input, const Arguments& arguments) {
    Bound("escape", arguments, {});
    if (!Always && input.text() != nullptr && input.text()->markup) return input;
    TextBuilder out(workspace);
    append_escaped(out, to_text(workspace, input));
    return workspace.text(out.take(), true);
}

Value replace(Workspace& workspace, const Value& input, const Arguments& arguments) {
    const Bound args("replace", arguments, {"old", "new", "count"}, 2);
    int64_t count = -1;
    if (args.given(2) && !args[2]->is_none()) count = args.integer(2);
    return workspace.text(replace_all(workspace, to_text(workspace, input),
                                      to_text(workspace, *args[0]), to_text(workspace, *args[1]),
                                      count));
}

Value indent(Workspace& workspace, const Value& input, const Arguments& arguments) {
    const Bound args("indent", arguments, {"width", "first", "blank"});
    std::string indention;
    if (args.given(0) && args[0]->text() != nullptr) {
        indention = args[0]->text()->bytes;
    } else {
        TextBuilder blanks(workspace);
        blanks.repeat(" ", args.integer(0, 4));
        indention = blanks.take();
    }
    if (input.text() == nullptr) {
        refuse_absent(input);
        stop("indent needs a string, not '" + std::string(type_name(input)) + "'");
    }
    const bool every = args.truth(2);
    const std::string text = input.text()->bytes + "\n";
    TextBuilder out(workspace);
    if (args.truth(1)) out << indention;
    bool first = true;
    for (const std::string_view line : split_lines(workspace, text, false)) {
        if (!first) {
            out << "\n";
            if (every || !line.empty()) out << indention;
        }
        first = false;
        out << line;
    }
    return workspace.text(out.take(), input.text()->markup);
}

Value center(Workspace& workspace, const Value& input, const Arguments& arguments) {
    const Bound args("center", arguments, {"width"});
    const Value text = soft_text(workspace, input);
    return workspace.text(center_text(workspace, text.text()->bytes, args.integer(0, 80), " ", 1),
                          text.text()->markup);
}

Value truncate(Workspace& workspace, const Value& input, const Arguments& arguments) {
    const Bound args("truncate", arguments, {"length", "killwords", "end", "leeway"});
    const int64_t length = args.integer(0, 255);
    const std::string_view end = args.text(2, "...");
    const int64_t leeway = args.given(3) && !args[3]->is_none() ? args.integer(3) : 5;
    const auto end_length = static_cast<int64_t>(count_characters(end));
    if (length < end_length || leeway < 0) stop("truncate: the length is too small");
    const auto size = granary::jinja::length(input);
    if (!size) stop("truncate: '" + std::string(type_name(input)) + "' has no length");
    workspace.touch(*size);
    if (static_cast<int64_t>(*size) - leeway <= length) return input;
    if (input.text() == nullptr) {
        stop("truncate needs a string, not '" + std::string(type_name(input)) + "'");
    }
    const std::string_view bytes = input.text()->bytes;
    std::string_view head =
        bytes.substr(0, offset_of(bytes, static_cast<size_t>(length - end_length)));
    if (!args.truth(1)) head = head.substr(0, std::min(head.rfind(' '), head.size()));
    return workspace.text(std::string(head) + std::string(end), input.text()->markup);
}

Value format(Workspace& workspace, const Value& input, const Arguments& arguments) {
    const Value text = soft_text(workspace, input);
    if (!arguments.named.empty() && !arguments.positional.empty()) {
        stop("format takes values by position or by name, not both");
    }
    if (arguments.named.empty()) {
        return percent_format(workspace, *text.text(), workspace.tuple(arguments.positional));
    }
    std::vector<std::pair<Value, Value>> entries;
    for (const auto& [key, value] : arguments.named) {
        entries.emplace_back(workspace.text(key), value);
    }
    return percent_format(workspace, *text.text(), workspace.mapping(std::move(entries)));
}

Value wordcount(Workspace& workspace, const Value& input, const Arguments& arguments) {
    Bound("wordcount", arguments, {});
    const std::string text = to_text(workspace, input);
    int64_t words = 0;
    bool inside = false;
    for (size_t at = 0; at < text.size();) {
        const bool word = is_word(decode(text, at));
        words += word && !inside ? 1 : 0;
        inside = word;
    }
    return words;
}

Value urlencode(Workspace& workspace, const Value& input, const Arguments& arguments) {
    Bound("urlencode", arguments, {});
    if (input.text() == nullptr && !input.is_number()) {
        stop("urlencode of mappings and lists is not supported", ErrorKind::unsupported);
    }
    TextBuilder out(workspace);
    for (const char c : to_text(workspace, input)) {
        const auto byte = static_cast<unsigned char>(c);
        const bool plain = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                           (byte >= '0' && byte <= '9') ||
                           std::string_view("-_.~/").find(c) != std::string_view::npos;
        if (plain) {
            out << c;
        } else {
            out << '%' << "0123456789ABCDEF"[byte >> 4] << "0123456789ABCDEF"[byte & 15];
        }
    }
    return workspace.text(out.take());
}

Value fallback(Workspace& workspace, const Value& input, const Arguments& arguments) {
    const Bound args("default", arguments, {"default_value", "boolean"});
    const bool missing = input.absence() != nullptr || (args.truth(1) && !truthy(input));
    if (!missing) return input;
    return args.given(0) ? *args[0] : workspace.text({});
}

Value attribute_filter(Workspace& workspace, const Value& input, const Arguments& arguments) {
    const Bound args("attr", arguments, {"name"}, 1);
    refuse_absent(input);
    if (auto found = member(workspace, input, args.text(0))) return std::move(*found);
    return workspace.absent(Absence::Why::attribute, type_name(input), std::string(args.text(0)));
}

constexpr std::pair<std::string_view, Filter> kFilters[] = {
    {"attr", attribute_filter},
    {"capitalize", change_case<capitalize>},
    {"center", center},
    {"d", fallback},
    {"default", fallback},
    {"e", escape<false>},
    {"escape", escape<false>},
    {"forceescape", escape<true>},
    {"format", format},
    {"indent", indent},
    {"lower", change_case<lower>},
    {"replace", replace},
    {"safe", safe},
    {"string", string},
    {"title", change_case<title_words>},
    {"tojson", to_json},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", change_case<upper>},
    {"urlencode", urlencode},
    {"wordcount", wordcount},
};

}  // namespace

Filter find_text_filter(std::string_view name) {
    const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                     [name](const auto& filter) { return filter.first == name; });
    return found != std::end(kFilters) ? found->second : nullptr;
}

Filter find_filter(std::string_view name) {
    for (const auto find :
         {find_text_filter, find_number_filter, find_sequence_filter, find_selection_filter}) {
        if (const Filter filter = find(name)) return filter;
    }
    return nullptr;
}

}  // namespace granary::jinja

// SPDX-License-Identifier: GPL-3.0-or-later
// Methods of str.
#include <algorithm>

#include "engine/text/template/arguments.h"
#include "engine/text/template/format.h"
#include "engine/text/template/markup.h"
#include "engine/text/template/methods.h"
#include "engine/text/template/numbers.h"
#include "engine/text/template/operators.h"
#include "engine/text/template/search.h"
#include "engine/text/template/unicode.h"

namespace granary::jinja {

namespace {

const Text& text_of(const Value& self) {
    return *self.text();
}

using Casing = std::string (*)(std::string_view);

template <Casing Change>
Value change_case(Workspace& workspace, const Value& self, const Arguments& arguments) {
    Bound("str method", arguments, {});
    const Text& text = text_of(self);
    workspace.scan(text.bytes.size() * 4);
    return workspace.text(Change(text.bytes), text.markup);
}

template <bool Left, bool Right>
Value strip_method(Workspace& workspace, const Value& self, const Arguments& arguments) {
    const Bound args("strip", arguments, {"chars"});
    const Text& text = text_of(self);
    workspace.touch(text.bytes.size());
    if (!args.given(0) || args[0]->is_none()) {
        std::string_view rest = text.bytes;
        if (Left) rest = strip_left(rest);
        if (Right) rest = strip_right(rest);
        return workspace.text(std::string(rest), text.markup);
    }
    return workspace.text(std::string(strip(text.bytes, args.text(0), Left, Right)), text.markup);
}

// The part [start, end) of a text, in characters, that find and its like look at.
struct Window {
    std::string_view bytes;
    size_t first_byte = 0;
    size_t first_character = 0;
    bool valid = true;  // start is not behind the end
};

Window window(const Text& text, const Bound& args, size_t start_at, size_t end_at) {
    const auto size = static_cast<int64_t>(count_characters(text.bytes));
    const auto bound = [&](size_t i, int64_t fallback) {
        if (!args.given(i) || args[i]->is_none()) return fallback;
        const int64_t value = args.integer(i);
        return value < 0 ? std::max<int64_t>(value + size, 0) : value;
    };
    const int64_t start = bound(start_at, 0);
    const int64_t end = std::min(bound(end_at, size), size);
    Window w;
    if (start > end) {
        w.valid = false;
        return w;
    }
    w.first_character = static_cast<size_t>(start);
    w.first_byte = offset_of(text.bytes, w.first_character);
    const std::string_view rest = std::string_view(text.bytes).substr(w.first_byte);
    w.bytes = rest.substr(0, offset_of(rest, static_cast<size_t>(end - start)));
    return w;
}

template <bool Last, bool MustBeThere>
Value find_method_of(Workspace& workspace, const Value& self, const Arguments& arguments) {
    const Bound args("find", arguments, {"sub", "start", "end"}, 1);
    const Text& text = text_of(self);
    workspace.touch(text.bytes.size());
    const Window w = window(text, args, 1, 2);
    const std::string_view wanted = args.text(0);
    size_t at = std::string_view::npos;
    if (w.valid) {
        at = Last ? find_last_text(workspace, w.bytes, wanted)
                  : find_text(workspace, w.bytes, wanted);
    }
    if (at != std::string_view::npos) {
        return static_cast<int64_t>(w.first_character + count_characters(w.bytes.substr(0, at)));
    }
    if (MustBeThere) stop("substring not found");
    return int64_t{-1};
}

Value count(Workspace& workspace, const Value& self, const Arguments& arguments) {
    const Bound args("count", arguments, {"sub", "start", "end"}, 1);
    const Text& text = text_of(self);
    workspace.touch(text.bytes.size());
    const Window w = window(text, args, 1, 2);
    const std::string_view wanted = args.text(0);
    if (!w.valid) return int64_t{0};
    if (wanted.empty()) return static_cast<int64_t>(count_characters(w.bytes) + 1);
    int64_t found = 0;
    for (size_t at = find_text(workspace, w.bytes, wanted); at != std::string_view::npos;
         at = find_text(workspace, w.bytes, wanted, at + wanted.size())) {
        ++found;
    }
    return found;
}

template <bool AtEnd>
Value has_affix(Workspace& workspace, const Value& self, const Arguments& arguments) {
    const Bound args(AtEnd ? "endswith" : "startswith", arguments, {"prefix", "start", "end"}, 1);
    const Text& text = text_of(self);
    Window w;
    if (args.given(1) || args.given(2)) {
        workspace.touch(text.bytes.size());
        w = window(text, args, 1, 2);
    } else {
        w.bytes = text.bytes;
    }
    const auto matches = [&](std::string_view affix) {
        return w.valid && (AtEnd ? w.bytes.ends_with(affix) : w.bytes.starts_with(affix));
    };
    const Sequence* several = args[0]->sequence();
    if (several == nullptr || several->flavor != Sequence::Flavor::tuple) {
        return matches(args.text(0));
    }
    workspace.step(several->items.size());
    for (const Value& item : several->items) {
        if (item.text() == nullptr) {
            stop("tuple for startswith or endswith must only contain str, not " +
                 std::string(type_name(item)));
        }
        if (matches(item.text()->bytes)) return true;
    }
    return false;
}

Value replace(Workspace& workspace, const Value& self, const Arguments& arguments) {
    const Bound args("replace", arguments, {"old", "new", "count"}, 2);
    args.text(0);
    args.text(1);
    const Text& text = text_of(self);
    const auto as_part = [&](size_t i) {
        TextBuilder out(workspace);
        append_as(out, *args[i]->text(), text.markup);
        return out.take();
    };
    return workspace.text(
        replace_all(workspace, text.bytes, as_part(0), as_part(1), args.integer(2, -1)),
        text.markup);
}

Value list_of(Workspace& workspace, const std::vector<std::string_view>& parts, bool markup) {
    std::vector<Value> items;
    items.reserve(parts.size());
    for (const std::string_view part : parts) {
        items.push_back(workspace.text(std::string(part), markup));
    }
    return workspace.list(std::move(items));
}

template <bool FromRight>
Value split(Workspace& workspace, const Value& self, const Arguments& arguments) {
    const Bound args(FromRight ? "rsplit" : "split", arguments, {"sep", "maxsplit"});
    const Text& text = text_of(self);
    workspace.touch(text.bytes.size());
    const int64_t most = args.integer(1, -1);
    std::vector<std::string_view> parts;
    const auto more = [&] {
        workspace.step();
        workspace.check_items(parts.size());
        return most < 0 || static_cast<int64_t>(parts.size()) < most;
    };
    std::string_view rest = text.bytes;
    if (!args.given(0) || args[0]->is_none()) {
        rest = FromRight ? strip_right(rest) : strip_left(rest);
        while (!rest.empty()) {
            if (!more()) {
                parts.push_back(rest);  // with the blanks on its far side
                break;
            }
            if (FromRight) {
                size_t begin = rest.size();
                while (begin > 0) {
                    size_t before = begin;
                    if (is_space(decode_before(rest, before))) break;
                    begin = before;
                }
                parts.push_back(rest.substr(begin));
                rest = strip_right(rest.substr(0, begin));
            } else {
                size_t end = 0;
                while (end < rest.size()) {
                    size_t next = end;
                    if (is_space(decode(rest, next))) break;
                    end = next;
                }
                parts.push_back(rest.substr(0, end));
                rest = strip_left(rest.substr(end));
            }
        }
    } else {
        const std::string_view separator = args.text(0);
        if (separator.empty()) stop("empty separator");
        while (more()) {
            const size_t at = FromRight ? find_last_text(workspace, rest, separator)
                                        : find_text(workspace, rest, separator);
            if (at == std::string_view::npos) break;
            if (FromRight) {
                parts.push_back(rest.substr(at + separator.size()));
                rest = rest.substr(0, at);
            } else {
                parts.push_back(rest.substr(0, at));
                rest = rest.substr(at + separator.size());
            }
        }
        parts.push_back(rest);
    }
    if (FromRight) std::reverse(parts.begin(), parts.end());
    return list_of(workspace, parts, text.markup);
}

Value splitlines(Workspace& workspace, const Value& self, const Arguments& arguments) {
    const Bound args("splitlines", arguments, {"keepends"});
    const Text& text = text_of(self);
    return list_of(workspace, split_lines(workspace, text.bytes, args.truth(0)), text.markup);
}

template <bool FromRight>
Value partition(Workspace& workspace, const Value& self, const Arguments& arguments) {
    const Bound args("partition", arguments, {"sep"}, 1);
    const Text& text = text_of(self);
    workspace.touch(text.bytes.size());
    const std::string_view separator = args.text(0);
    if (separator.empty()) stop("empty separator");
    const std::string_view bytes = text.bytes;
    const size_t at = FromRight ? find_last_text(workspace, bytes, separator)
                                : find_text(workspace, bytes, separator);
    const bool found = at != std::string_view::npos;
    std::string_view head = found ? bytes.substr(0, at) : FromRight ? "" : bytes;
    std::string_view tail = found ? bytes.substr(at + separator.size()) : FromRight ? bytes : "";
    const auto part = [&](std::string_view s) {
        return workspace.text(std::string(s), text.markup);
    };
    return workspace.tuple({part(head), part(found ? separator : ""), part(tail)});
}

Value join(Workspace& workspace, const Value& self, const Arguments& arguments) {
    const Bound args("join", arguments, {"iterable"}, 1);
    const Text& separator = text_of(self);
    TextBuilder out(workspace);
    bool first = true;
    for (const Value& item : iterate(workspace, *args[0])) {
        if (item.text() == nullptr) {
            refuse_absent(item);
            stop("join: expected str instance, " + std::string(type_name(item)) + " found");
        }
        if (!first) out << separator.bytes;
        first = false;
        append_as(out, *item.text(), separator.markup);
    }
    return workspace.text(out.take(), separator.markup);
}

template <bool Suffix>
Value remove_affix(Workspace& workspace, const Value& self, const Arguments& arguments) {
    const Bound args(Suffix ? "removesuffix" : "removeprefix", arguments, {"affix"}, 1);
    const Text& text = text_of(self);
    std::string_view rest = text.bytes;
    const std::string_view affix = args.text(0);
    if (Suffix && rest.ends_with(affix)) rest.remove_suffix(affix.size());
    if (!Suffix && rest.starts_with(affix)) rest.remove_prefix(affix.size());
    return workspace.text(std::string(rest), text.markup);
}

enum class Side { left, right, both };

template <Side Text_side>
Value justify(Workspace& workspace, const Value& self, const Arguments& arguments) {
    const Bound args("justify", arguments, {"width", "fillchar"}, 1);
    const std::string_view fill = args.text(1, " ");
    if (count_characters(fill) != 1) stop("the fill character must be exactly one character long");
    const Text& text = text_of(self);
    return workspace.text(center_text(workspace, text.bytes, args.integer(0), fill,
                                      Text_side == Side::left    ? 0
                                      : Text_side == Side::right ? 2
                                                                 : 1),
                          text.markup);
}

Value zfill(Workspace& workspace, const Value& self, const Arguments& arguments) {
    const Bound args("zfill", arguments, {"width"}, 1);
    const Text& text = text_of(self);
    std::string_view digits = text.bytes;
    TextBuilder out(workspace);
    const int64_t missing = args.integer(0) - static_cast<int64_t>(count_characters(digits));
    if (digits.starts_with('-') || digits.starts_with('+')) {
        out << digits[0];
        digits.remove_prefix(1);
    }
    out.repeat("0", missing);
    out << digits;
    return workspace.text(out.take(), text.markup);
}

Value expandtabs(Workspace& workspace, const Value& self, const Arguments& arguments) {
    const Bound args("expandtabs", arguments, {"tabsize"});
    const int64_t size = args.integer(0, 8);
    const Text& text = text_of(self);
    workspace.scan(text.bytes.size());
    TextBuilder out(workspace);
    int64_t column = 0;
    for (size_t at = 0; at < text.bytes.size();) {
        const size_t begin = at;
        const char32_t c = decode(text.bytes, at);
        if (c == '\t') {
            const int64_t blanks = size > 0 ? size - column % size : 0;
            out.repeat(" ", blanks);
            column += blanks;
        } else {
            out << std::string_view(text.bytes).substr(begin, at - begin);
            column = c == '\n' || c == '\r' ? 0 : column + 1;
        }
    }
    return workspace.text(out.take(), text.markup);
}

Value format(Workspace& workspace, const Value& self, const Arguments& arguments) {
    return brace_format(workspace, text_of(self), arguments);
}

template <const char* const& Name>
Value unsupported(Workspace&, const Value&, const Arguments&) {
    stop(std::string("the string method '") + Name + "' is not supported", ErrorKind::unsupported);
}

constexpr const char* kEncode = "encode";
constexpr const char* kFormatMap = "format_map";
constexpr const char* kIsIdentifier = "isidentifier";
constexpr const char* kIsNumeric = "isnumeric";
constexpr const char* kMakeTrans = "maketrans";
constexpr const char* kTranslate = "translate";

constexpr std::pair<std::string_view, Method> kMethods[] = {
    {"capitalize", change_case<capitalize>},
    {"casefold", change_case<casefold>},
    {"center", justify<Side::both>},
    {"count", count},
    {"encode", unsupported<kEncode>},
    {"endswith", has_affix<true>},
    {"expandtabs", expandtabs},
    {"find", find_method_of<false, false>},
    {"format", format},
    {"format_map", unsupported<kFormatMap>},
    {"index", find_method_of<false, true>},
    {"isidentifier", unsupported<kIsIdentifier>},
    {"isnumeric", unsupported<kIsNumeric>},
    {"join", join},
    {"ljust", justify<Side::left>},
    {"lower", change_case<lower>},
    {"lstrip", strip_method<true, false>},
    {"maketrans", unsupported<kMakeTrans>},
    {"partition", partition<false>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"replace", replace},
    {"rfind", find_method_of<true, false>},
    {"rindex", find_method_of<true, true>},
    {"rjust", justify<Side::right>},
    {"rpartition", partition<true>},
    {"rsplit", split<true>},
    {"rstrip", strip_method<false, true>},
    {"split", split<false>},
    {"splitlines", splitlines},
    {"startswith", has_affix<false>},
    {"strip", strip_method<true, true>},
    {"swapcase", change_case<swapcase>},
    {"title", change_case<title>},
    {"translate", unsupported<kTranslate>},
    {"upper", change_case<upper>},
    {"zfill", zfill},
};

}  // namespace

Method find_text_method(std::string_view name) {
    if (const Method method = find_text_predicate(name)) return method;
    const auto* found =
        std::lower_bound(std::begin(kMethods), std::end(kMethods), name,
                         [](const auto& method, std::string_view n) { return method.first < n; });
    return found != std::end(kMethods) && found->first == name ? found->second : nullptr;
}

}  // namespace granary::jinja

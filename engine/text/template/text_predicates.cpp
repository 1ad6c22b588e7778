// SPDX-License-Identifier: GPL-3.0-or-later
// Methods of str that ask what its characters are.
#include <algorithm>

#include "engine/text/template/arguments.h"
#include "engine/text/template/methods.h"
#include "engine/text/template/unicode.h"

namespace granary::jinja {

namespace {

const Text& text_of(const Value& self) {
    return *self.text();
}

template <bool (*Class)(char32_t), bool EmptyCounts = false>
Value all_of(Workspace& workspace, const Value& self, const Arguments& arguments) {
    Bound("str method", arguments, {});
    const std::string& bytes = text_of(self).bytes;
    workspace.scan(bytes.size());
    for (size_t at = 0; at < bytes.size();) {
        if (!Class(decode(bytes, at))) return false;
    }
    return EmptyCounts || !bytes.empty();
}

bool is_ascii(char32_t c) {
    return c < 0x80;
}
bool is_alphanumeric(char32_t c) {
    return is_word(c) && c != '_';
}

template <bool Upper>
Value has_case(Workspace& workspace, const Value& self, const Arguments& arguments) {
    Bound("str method", arguments, {});
    const std::string& bytes = text_of(self).bytes;
    workspace.scan(bytes.size());
    bool cased = false;
    for (size_t at = 0; at < bytes.size();) {
        const char32_t c = decode(bytes, at);
        if (Upper ? is_lower(c) || is_title(c) : is_upper(c) || is_title(c)) return false;
        cased |= is_cased(c);
    }
    return cased;
}

Value istitle(Workspace& workspace, const Value& self, const Arguments& arguments) {
    Bound("istitle", arguments, {});
    const std::string& bytes = text_of(self).bytes;
    workspace.scan(bytes.size());
    bool cased = false;
    bool inside = false;
    for (size_t at = 0; at < bytes.size();) {
        const char32_t c = decode(bytes, at);
        if (is_upper(c) || is_title(c)) {
            if (inside) return false;
            cased = inside = true;
        } else if (is_lower(c)) {
            if (!inside) return false;
        } else {
            inside = false;
        }
    }
    return cased;
}

constexpr std::pair<std::string_view, Method> kPredicates[] = {
    {"isalnum", all_of<is_alphanumeric>},
    {"isalpha", all_of<is_alpha>},
    {"isascii", all_of<is_ascii, true>},
    {"isdecimal", all_of<is_decimal>},
    {"isdigit", all_of<is_digit>},
    {"islower", has_case<false>},
    {"isprintable", all_of<is_printable, true>},
    {"isspace", all_of<is_space>},
    {"istitle", istitle},
    {"isupper", has_case<true>},
};

}  // namespace

Method find_text_predicate(std::string_view name) {
    const auto* found =
        std::find_if(std::begin(kPredicates), std::end(kPredicates),
                     [name](const auto& predicate) { return predicate.first == name; });
    return found != std::end(kPredicates) ? found->second : nullptr;
}

}  // namespace granary::jinja

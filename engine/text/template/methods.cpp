// SPDX-License-Identifier: GPL-3.0-or-later
// Methods of sequences and mappings, and what text methods share with filters.
#include "engine/text/template/methods.h"

#include <algorithm>

#include "engine/text/template/arguments.h"
#include "engine/text/template/operators.h"
#include "engine/text/template/search.h"
#include "engine/text/template/unicode.h"

namespace granary::jinja {

std::string_view strip(std::string_view text, std::string_view set, bool left, bool right) {
    std::vector<char32_t> characters;
    for (size_t at = 0; at < set.size();) characters.push_back(decode(set, at));
    std::sort(characters.begin(), characters.end());
    const auto in_set = [&characters](char32_t c) {
        return std::binary_search(characters.begin(), characters.end(), c);
    };
    size_t begin = 0;
    while (left && begin < text.size()) {
        size_t next = begin;
        if (!in_set(decode(text, next))) break;
        begin = next;
    }
    size_t end = text.size();
    while (right && end > begin) {
        size_t before = end;
        if (!in_set(decode_before(text, before))) break;
        end = before;
    }
    return text.substr(begin, end - begin);
}

std::string replace_all(Workspace& workspace, std::string_view text, std::string_view from,
                        std::string_view to, int64_t count) {
    workspace.touch(text.size());
    TextBuilder out(workspace);
    size_t at = 0;
    if (from.empty()) {  // between all characters and at both ends
        for (; count != 0; --count) {
            workspace.step();
            out << to;
            if (at >= text.size()) break;
            const size_t begin = at;
            decode(text, at);
            out << text.substr(begin, at - begin);
        }
        out << text.substr(at);
        return out.take();
    }
    for (; count != 0; --count) {
        const size_t found = find_text(workspace, text, from, at);
        if (found == std::string_view::npos) break;
        workspace.step();
        out << text.substr(at, found - at) << to;
        at = found + from.size();
    }
    out << text.substr(at);
    return out.take();
}

std::vector<std::string_view> split_lines(Workspace& workspace, std::string_view text,
                                          bool keep_ends) {
    workspace.scan(text.size());
    std::vector<std::string_view> lines;
    size_t begin = 0;
    for (size_t at = 0; at < text.size();) {
        const size_t end = at;
        const char32_t c = decode(text, at);
        const bool ends = (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                          c == 0x2028 || c == 0x2029;
        if (!ends) continue;
        if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
        workspace.step();
        workspace.check_items(lines.size());
        lines.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
        begin = at;
    }
    if (begin < text.size()) lines.push_back(text.substr(begin));
    return lines;
}

std::string center_text(Workspace& workspace, std::string_view text, int64_t width,
                        std::string_view fill, int side) {
    const auto length = static_cast<int64_t>(count_characters(text));
    const int64_t space = std::max<int64_t>(width - length, 0);
    // Python gives the odd blank to the left if the width is odd.
    const int64_t before = side == 0 ? 0 : side == 2 ? space : space / 2 + (space & width & 1);
    TextBuilder out(workspace);
    out.repeat(fill, before);
    out << text;
    out.repeat(fill, space - before);
    return out.take();
}

namespace {

Value mapping_get(Workspace& workspace, const Value& self, const Arguments& arguments) {
    const Bound args("get", arguments, {"key", "default"}, 1);
    require_key(workspace, *args[0]);
    if (const Value* found = self.mapping()->find(*args[0])) return *found;
    return args.given(1) ? *args[1] : Value();
}

Value mapping_items(Workspace& workspace, const Value& self, const Arguments& arguments) {
    Bound("items", arguments, {});
    std::vector<Value> items;
    items.reserve(self.mapping()->entries.size());
    for (const auto& [key, value] : self.mapping()->entries) {
        items.push_back(workspace.tuple({key, value}));
    }
    return workspace.sequence(Sequence::Flavor::items, std::move(items));
}

Value mapping_keys(Workspace& workspace, const Value& self, const Arguments& arguments) {
    Bound("keys", arguments, {});
    return workspace.sequence(Sequence::Flavor::keys, iterate(workspace, self));
}

Value mapping_values(Workspace& workspace, const Value& self, const Arguments& arguments) {
    Bound("values", arguments, {});
    std::vector<Value> items;
    items.reserve(self.mapping()->entries.size());
    for (const auto& entry : self.mapping()->entries) items.push_back(entry.second);
    return workspace.sequence(Sequence::Flavor::values, std::move(items));
}

Value copy(Workspace&, const Value& self, const Arguments& arguments) {
    Bound("copy", arguments, {});
    return self;  // values do not change, so a copy is the value itself
}

Value sequence_count(Workspace& workspace, const Value& self, const Arguments& arguments) {
    const Bound args("count", arguments, {"value"}, 1);
    const auto& items = self.sequence()->items;
    return static_cast<int64_t>(std::count_if(items.begin(), items.end(), [&](const Value& item) {
        return equal(workspace, item, *args[0]);
    }));
}

Value sequence_index(Workspace& workspace, const Value& self, const Arguments& arguments) {
    const Bound args("index", arguments, {"value", "start", "stop"}, 1);
    const auto& items = self.sequence()->items;
    const auto size = static_cast<int64_t>(items.size());
    const auto bound = [&](size_t i, int64_t fallback) {
        const int64_t value = args.integer(i, fallback);
        return std::clamp<int64_t>(value < 0 ? value + size : value, 0, size);
    };
    for (int64_t i = bound(1, 0); i < bound(2, size); ++i) {
        if (equal(workspace, items[static_cast<size_t>(i)], *args[0])) return i;
    }
    stop("the value is not in the list");
}

}  // namespace

Method find_method(const Value& self, std::string_view name) {
    if (self.text() != nullptr) return find_text_method(name);
    if (self.mapping() != nullptr) {
        if (name == "get") return mapping_get;
        if (name == "items") return mapping_items;
        if (name == "keys") return mapping_keys;
        if (name == "values") return mapping_values;
        if (name == "copy") return copy;
        return nullptr;
    }
    const Sequence* sequence = self.sequence();
    if (sequence == nullptr || sequence->flavor > Sequence::Flavor::range) return nullptr;
    if (name == "count") return sequence_count;
    if (name == "index") return sequence_index;
    if (name == "copy" && sequence->flavor == Sequence::Flavor::list) return copy;
    return nullptr;
}

}  // namespace granary::jinja

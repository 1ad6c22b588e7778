// SPDX-License-Identifier: GPL-3.0-or-later
// Filters that look at a sequence as a whole.
#include <algorithm>
#include <charconv>

#include "engine/text/template/arguments.h"
#include "engine/text/template/attribute_path.h"
#include "engine/text/template/filters.h"
#include "engine/text/template/numbers.h"
#include "engine/text/template/operators.h"
#include "engine/text/template/text_form.h"
#include "engine/text/template/unicode.h"
#include "engine/text/template/workspace.h"

namespace granary::jinja {

AttributePath::AttributePath(Workspace& workspace, const Value* attribute) {
    if (attribute == nullptr || attribute->is_none()) return;
    const Text* text = attribute->text();
    if (text == nullptr) {
        parts_.push_back(*attribute);
        return;
    }
    std::string_view rest = text->bytes;
    while (true) {
        const size_t dot = std::min(rest.find('.'), rest.size());
        const std::string_view part = rest.substr(0, dot);
        int64_t index = 0;
        const auto r = std::from_chars(part.data(), part.data() + part.size(), index);
        const bool digits = !part.empty() && part[0] != '-' && r.ec == std::errc{} &&
                            r.ptr == part.data() + part.size();
        parts_.push_back(digits ? Value(index) : workspace.text(std::string(part)));
        if (dot == rest.size()) break;
        rest.remove_prefix(dot + 1);
    }
}

Value AttributePath::of(Workspace& workspace, const Value& item, const Value* fallback) const {
    Value value = item;
    for (const Value& part : parts_) {
        workspace.step();
        value = subscript(workspace, value, part);
        if (fallback != nullptr && value.absence() != nullptr) value = *fallback;
    }
    return value;
}

Value ignore_case(Workspace& workspace, const Value& value) {
    const Text* text = value.text();
    return text != nullptr ? workspace.text(lower(text->bytes)) : value;
}

namespace {

Value count(Workspace&, const Value& input, const Arguments& arguments) {
    Bound("length", arguments, {});
    if (const auto size = length(input)) return static_cast<int64_t>(*size);
    stop("object of type '" + std::string(type_name(input)) + "' has no len()");
}

Value first(Workspace& workspace, const Value& input, const Arguments& arguments) {
    Bound("first", arguments, {});
    if (const Sequence* sequence = input.sequence(); sequence != nullptr) {
        if (!sequence->items.empty()) return sequence->items.front();
    } else if (Iterator* iterator = input.iterator()) {
        if (iterator->next < iterator->items.size()) return iterator->items[iterator->next++];
    } else {
        const std::vector<Value> items = iterate(workspace, input);
        if (!items.empty()) return items.front();
    }
    return workspace.absent(Absence::Why::hint, "first", "No first item, sequence was empty.");
}

Value last(Workspace& workspace, const Value& input, const Arguments& arguments) {
    Bound("last", arguments, {});
    if (input.iterator() != nullptr) stop("'generator' object is not reversible");
    if (const Sequence* sequence = input.sequence(); sequence != nullptr) {
        if (!sequence->items.empty()) return sequence->items.back();
    } else {
        const std::vector<Value> items = iterate(workspace, input);
        if (!items.empty()) return items.back();
    }
    return workspace.absent(Absence::Why::hint, "last", "No last item, sequence was empty.");
}

Value list(Workspace& workspace, const Value& input, const Arguments& arguments) {
    Bound("list", arguments, {});
    return workspace.list(iterate(workspace, input));
}

Value items(Workspace& workspace, const Value& input, const Arguments& arguments) {
    Bound("items", arguments, {});
    std::vector<Value> pairs;
    if (input.absence() == nullptr) {
        if (input.mapping() == nullptr) stop("Can only get item pairs from a mapping.");
        for (const auto& [key, value] : input.mapping()->entries) {
            pairs.push_back(workspace.tuple({key, value}));
        }
    }
    return workspace.iterator(std::move(pairs));
}

Value join(Workspace& workspace, const Value& input, const Arguments& arguments) {
    const Bound args("join", arguments, {"d", "attribute"});
    const AttributePath path(workspace, args[1]);
    const std::string separator = args.given(0) ? to_text(workspace, *args[0]) : "";
    TextBuilder out(workspace);
    bool begun = false;
    for (const Value& item : iterate(workspace, input)) {
        if (begun) out << separator;
        begun = true;
        append_text(out, path.of(workspace, item));
    }
    return workspace.text(out.take());
}

Value reverse(Workspace& workspace, const Value& input, const Arguments& arguments) {
    Bound("reverse", arguments, {});
    std::vector<Value> items = iterate(workspace, input);
    if (input.text() != nullptr) {
        TextBuilder out(workspace);
        for (auto it = items.rbegin(); it != items.rend(); ++it) out << it->text()->bytes;
        return workspace.text(out.take(), input.text()->markup);
    }
    std::reverse(items.begin(), items.end());
    if (input.iterator() != nullptr) return workspace.list(std::move(items));
    return workspace.iterator(std::move(items));
}

struct Keyed {
    std::vector<Value> keys;
    Value item;
};

// Stable, and for `reverse` as well: equal items keep their order.
std::vector<Value> sorted(Workspace& workspace, std::vector<Keyed> keyed, bool reverse) {
    const auto before = [&](const Keyed& a, const Keyed& b) {
        for (size_t i = 0; i < a.keys.size(); ++i) {
            if (i + 1 < a.keys.size() && equal(workspace, a.keys[i], b.keys[i])) continue;
            return less(workspace, a.keys[i], b.keys[i]);
        }
        return false;
    };
    std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
        return reverse ? before(b, a) : before(a, b);
    });
    std::vector<Value> items;
    items.reserve(keyed.size());
    for (Keyed& k : keyed) items.push_back(std::move(k.item));
    return items;
}

Value sort(Workspace& workspace, const Value& input, const Arguments& arguments) {
    const Bound args("sort", arguments, {"reverse", "case_sensitive", "attribute"});
    const bool exact = args.truth(1);
    std::vector<AttributePath> paths;
    if (args.given(2) && args[2]->text() != nullptr) {
        std::string_view rest = args[2]->text()->bytes;
        while (true) {  // "age,name"
            const size_t comma = std::min(rest.find(','), rest.size());
            const Value part = workspace.text(std::string(rest.substr(0, comma)));
            paths.emplace_back(workspace, &part);
            if (comma == rest.size()) break;
            rest.remove_prefix(comma + 1);
        }
    } else {
        paths.emplace_back(workspace, args[2]);
    }
    std::vector<Keyed> keyed;
    for (Value& item : iterate(workspace, input)) {
        Keyed entry;
        for (const AttributePath& path : paths) {
            const Value key = path.of(workspace, item);
            entry.keys.push_back(exact ? key : ignore_case(workspace, key));
        }
        entry.item = std::move(item);
        keyed.push_back(std::move(entry));
    }
    return workspace.list(sorted(workspace, std::move(keyed), args.truth(0)));
}

Value dictsort(Workspace& workspace, const Value& input, const Arguments& arguments) {
    const Bound args("dictsort", arguments, {"case_sensitive", "by", "reverse"});
    const std::string_view by = args.text(1, "key");
    if (by != "key" && by != "value") stop("You can only sort by either \"key\" or \"value\"");
    if (input.mapping() == nullptr) {
        refuse_absent(input);
        stop("dictsort needs a mapping, not '" + std::string(type_name(input)) + "'");
    }
    std::vector<Keyed> keyed;
    for (const auto& [key, value] : input.mapping()->entries) {
        const Value& sort_by = by == "key" ? key : value;
        keyed.push_back({{args.truth(0) ? sort_by : ignore_case(workspace, sort_by)},
                         workspace.tuple({key, value})});
    }
    return workspace.list(sorted(workspace, std::move(keyed), args.truth(2)));
}

template <bool Largest>
Value extreme(Workspace& workspace, const Value& input, const Arguments& arguments) {
    const Bound args(Largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
    const AttributePath path(workspace, args[1]);
    const bool exact = args.truth(0);
    std::optional<Value> best;
    Value best_key;
    for (const Value& item : iterate(workspace, input)) {
        Value key = path.of(workspace, item);
        if (!exact) key = ignore_case(workspace, key);
        const bool better =
            !best || (Largest ? less(workspace, best_key, key) : less(workspace, key, best_key));
        if (!better) continue;
        best = item;
        best_key = std::move(key);
    }
    if (best) return *best;
    return workspace.absent(Absence::Why::hint, "max", "No aggregated item, sequence was empty.");
}

Value sum(Workspace& workspace, const Value& input, const Arguments& arguments) {
    const Bound args("sum", arguments, {"attribute", "start"});
    const AttributePath path(workspace, args[0]);
    Value total = args.given(1) ? *args[1] : Value(int64_t{0});
    if (total.text() != nullptr) stop("sum() can't sum strings");
    for (const Value& item : iterate(workspace, input)) {
        total = arithmetic(workspace, BinaryOp::add, total, path.of(workspace, item));
    }
    return total;
}

Value unique(Workspace& workspace, const Value& input, const Arguments& arguments) {
    const Bound args("unique", arguments, {"case_sensitive", "attribute"});
    const AttributePath path(workspace, args[1]);
    std::vector<Value> kept;
    std::vector<Value> keys;
    for (const Value& item : iterate(workspace, input)) {
        Value key = path.of(workspace, item);
        if (!args.truth(0)) key = ignore_case(workspace, key);
        require_key(workspace, key);
        const bool seen = std::any_of(keys.begin(), keys.end(), [&](const Value& other) {
            return equal(workspace, key, other);
        });
        if (seen) continue;
        keys.push_back(std::move(key));
        kept.push_back(item);
    }
    return workspace.iterator(std::move(kept));
}

Value batch(Workspace& workspace, const Value& input, const Arguments& arguments) {
    const Bound args("batch", arguments, {"linecount", "fill_with"}, 1);
    const int64_t size = args.integer(0);
    std::vector<Value> rows;
    std::vector<Value> row;
    for (Value& item : iterate(workspace, input)) {
        if (static_cast<int64_t>(row.size()) == size) {
            rows.push_back(workspace.list(std::exchange(row, {})));
        }
        row.push_back(std::move(item));
    }
    if (!row.empty()) {
        if (args.given(1) && !args[1]->is_none() && size > static_cast<int64_t>(row.size())) {
            workspace.check_items(static_cast<uint64_t>(size));
            workspace.step(static_cast<uint64_t>(size));
            row.resize(static_cast<size_t>(size), *args[1]);
        }
        rows.push_back(workspace.list(std::move(row)));
    }
    return workspace.iterator(std::move(rows));
}

Value slice_filter(Workspace& workspace, const Value& input, const Arguments& arguments) {
    const Bound args("slice", arguments, {"slices", "fill_with"}, 1);
    const int64_t slices = args.integer(0);
    if (slices == 0) stop("integer division or modulo by zero");
    const std::vector<Value> all = iterate(workspace, input);
    std::vector<Value> columns;
    if (slices > 0) {
        workspace.check_items(static_cast<uint64_t>(slices));
        const auto size = static_cast<int64_t>(all.size());
        int64_t begin = 0;
        for (int64_t i = 0; i < slices; ++i) {
            const bool longer = i < size % slices;
            const int64_t end = begin + size / slices + (longer ? 1 : 0);
            std::vector<Value> column(all.begin() + begin, all.begin() + end);
            if (!longer && args.given(1) && !args[1]->is_none()) column.push_back(*args[1]);
            columns.push_back(workspace.list(std::move(column)));
            begin = end;
        }
    }
    return workspace.iterator(std::move(columns));
}

constexpr std::pair<std::string_view, Filter> kFilters[] = {
    {"batch", batch},        {"count", count},        {"dictsort", dictsort},
    {"first", first},        {"items", items},        {"join", join},
    {"last", last},          {"length", count},       {"list", list},
    {"max", extreme<true>},  {"min", extreme<false>}, {"reverse", reverse},
    {"slice", slice_filter}, {"sort", sort},          {"sum", sum},
    {"unique", unique},
};

}  // namespace

Filter find_sequence_filter(std::string_view name) {
    const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                     [name](const auto& filter) { return filter.first == name; });
    return found != std::end(kFilters) ? found->second : nullptr;
}

}  // namespace granary::jinja

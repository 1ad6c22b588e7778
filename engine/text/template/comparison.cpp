// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>
#include <cmath>
#include <string>

#include "engine/text/template/frame.h"
#include "engine/text/template/numbers.h"
#include "engine/text/template/operators.h"
#include "engine/text/template/search.h"
#include "engine/text/template/workspace.h"

namespace granary::jinja {

namespace {

// Order of two numbers, exact also between integers and reals; nothing with a NaN.
std::optional<int> order_numbers(const Value& left, const Value& right) {
    const auto sign = [](auto a, auto b) { return a < b ? -1 : a > b ? 1 : 0; };
    const auto wide = [](const Value& v) -> __int128_t {
        if (const auto* u = v.as<uint64_t>()) return *u;
        return as_integer(v).value_or(0);
    };
    const auto* a = left.as<double>();
    const auto* b = right.as<double>();
    if (a == nullptr && b == nullptr) return sign(wide(left), wide(right));
    if ((a != nullptr && std::isnan(*a)) || (b != nullptr && std::isnan(*b))) return std::nullopt;
    if (a != nullptr && b != nullptr) return sign(*a, *b);
    if (a == nullptr) return -*order_numbers(right, left);
    if (*a >= 0x1p65) return 1;
    if (*a <= -0x1p65) return -1;
    const auto whole = static_cast<__int128_t>(std::floor(*a));
    if (whole != wide(right)) return sign(whole, wide(right));
    return *a > std::floor(*a) ? 1 : 0;
}

bool equal_items(Workspace& workspace, const std::vector<Value>& a, const std::vector<Value>& b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i) {
        if (!equal(workspace, a[i], b[i])) return false;
    }
    return true;
}

std::string_view symbol(CompareOp op) {
    switch (op) {
        case CompareOp::less:
            return "<";
        case CompareOp::less_equal:
            return "<=";
        case CompareOp::greater:
            return ">";
        case CompareOp::greater_equal:
            return ">=";
        default:
            return "==";
    }
}

// Three-way order of values that Python can order; throws for the others. Nothing: unordered.
std::optional<int> order(Workspace& workspace, CompareOp op, const Value& left,
                         const Value& right) {
    workspace.step();
    if (left.is_number() && right.is_number()) return order_numbers(left, right);
    if (left.text() != nullptr && right.text() != nullptr) {
        workspace.touch(std::min(left.text()->bytes.size(), right.text()->bytes.size()));
        // Bytes of UTF-8 have the order of their code points.
        const int c = left.text()->bytes.compare(right.text()->bytes);
        return c < 0 ? -1 : c > 0 ? 1 : 0;
    }
    const Sequence* a = left.sequence();
    const Sequence* b = right.sequence();
    if (a != nullptr && b != nullptr && a->flavor == b->flavor && is_list_or_tuple(left)) {
        const size_t common = std::min(a->items.size(), b->items.size());
        for (size_t i = 0; i < common; ++i) {
            if (!equal(workspace, a->items[i], b->items[i])) {
                return order(workspace, op, a->items[i], b->items[i]);
            }
        }
        return a->items.size() < b->items.size() ? -1 : a->items.size() > b->items.size() ? 1 : 0;
    }
    refuse_absent(left);
    refuse_absent(right);
    stop("'" + std::string(symbol(op)) + "' not supported between instances of '" +
         type_name(left) + "' and '" + type_name(right) + "'");
}

}  // namespace

bool equal(Workspace& workspace, const Value& left, const Value& right) {
    workspace.step();
    if (left.is_number() && right.is_number()) return order_numbers(left, right) == 0;
    if (left.data().index() != right.data().index()) return false;
    if (left.text() != nullptr) {
        if (left.text()->bytes.size() != right.text()->bytes.size()) return false;
        workspace.touch(left.text()->bytes.size());
        return left.text()->bytes == right.text()->bytes;
    }
    if (const Sequence* a = left.sequence()) {
        const Sequence* b = right.sequence();
        return a == b || (a->flavor == b->flavor && equal_items(workspace, a->items, b->items));
    }
    if (const Mapping* a = left.mapping()) {
        const Mapping* b = right.mapping();
        if (a == b) return true;
        if (a->entries.size() != b->entries.size()) return false;
        for (const auto& [key, value] : a->entries) {
            const Value* other = b->find(key);
            if (other == nullptr || !equal(workspace, value, *other)) return false;
        }
        return true;
    }
    if (left.is_none()) return true;
    if (left.absence() != nullptr) return true;
    return left.name_space() == right.name_space() && left.iterator() == right.iterator() &&
           left.function() == right.function() && left.loop() == right.loop();
}

bool less(Workspace& workspace, const Value& left, const Value& right) {
    const auto result = order(workspace, CompareOp::less, left, right);
    return result && *result < 0;
}

bool compare(Workspace& workspace, CompareOp op, const Value& left, const Value& right) {
    switch (op) {
        case CompareOp::equal:
            return equal(workspace, left, right);
        case CompareOp::not_equal:
            return !equal(workspace, left, right);
        case CompareOp::in:
            return contains(workspace, right, left);
        case CompareOp::not_in:
            return !contains(workspace, right, left);
        default:
            break;
    }
    const auto result = order(workspace, op, left, right);
    if (!result) return false;
    switch (op) {
        case CompareOp::less:
            return *result < 0;
        case CompareOp::less_equal:
            return *result <= 0;
        case CompareOp::greater:
            return *result > 0;
        default:
            return *result >= 0;
    }
}

bool contains(Workspace& workspace, const Value& container, const Value& item) {
    if (const Text* text = container.text()) {
        if (item.text() == nullptr) {
            refuse_absent(item);
            stop("'in <string>' requires string as left operand, not " +
                 std::string(type_name(item)));
        }
        return find_text(workspace, text->bytes, item.text()->bytes) != std::string::npos;
    }
    if (const Mapping* mapping = container.mapping()) {
        require_key(workspace, item);
        if (mapping->by_text.empty()) workspace.step(mapping->entries.size() / 4);
        return mapping->find(item) != nullptr;
    }
    if (const Sequence* sequence = container.sequence()) {
        return std::any_of(sequence->items.begin(), sequence->items.end(),
                           [&](const Value& v) { return equal(workspace, v, item); });
    }
    if (container.absence() == nullptr && container.iterator() == nullptr &&
        container.loop() == nullptr) {
        stop("argument of type '" + std::string(type_name(container)) + "' is not iterable");
    }
    const std::vector<Value> items = iterate(workspace, container);
    return std::any_of(items.begin(), items.end(),
                       [&](const Value& v) { return equal(workspace, v, item); });
}

void require_key(Workspace& workspace, const Value& key) {
    constexpr size_t kMostParts = 16;
    const auto scalar = [&workspace](const Value& value) {
        // Sorting and finding compare a text a few times.
        if (const Text* text = value.text()) workspace.touch(text->bytes.size() * 16);
        return value.sequence() == nullptr && value.mapping() == nullptr;
    };
    if (scalar(key)) return;
    const Sequence* sequence = key.sequence();
    const auto flavor = sequence != nullptr ? sequence->flavor : Sequence::Flavor::list;
    if (flavor == Sequence::Flavor::tuple) {
        if (sequence->items.size() > kMostParts ||
            !std::all_of(sequence->items.begin(), sequence->items.end(), scalar)) {
            stop("a mapping key that is a tuple of more than " + std::to_string(kMostParts) +
                     " values, or of lists and tuples, is not supported",
                 ErrorKind::unsupported);
        }
    } else if (flavor == Sequence::Flavor::range) {
        stop("a range as mapping key is not supported", ErrorKind::unsupported);
    } else {
        stop("unhashable type: '" + std::string(type_name(key)) + "'");
    }
}

bool same_key(const Value& left, const Value& right) {
    if (left.is_number() && right.is_number()) return order_numbers(left, right) == 0;
    if (left.data().index() != right.data().index()) return false;
    if (left.text() != nullptr) return left.text()->bytes == right.text()->bytes;
    if (const Sequence* a = left.sequence()) {
        const Sequence* b = right.sequence();
        return a->flavor == b->flavor && std::equal(a->items.begin(), a->items.end(),
                                                    b->items.begin(), b->items.end(), same_key);
    }
    if (left.is_none() || left.absence() != nullptr) return true;
    return left.name_space() == right.name_space() && left.iterator() == right.iterator() &&
           left.function() == right.function() && left.loop() == right.loop();
}

void fill_mapping(Workspace& workspace, Mapping& mapping,
                  std::vector<std::pair<Value, Value>> entries) {
    constexpr size_t kFewEntries = 12;  // a walk over these is as fast as a search
    for (const auto& entry : entries) require_key(workspace, entry.first);
    std::vector<uint32_t> by_text;
    for (size_t i = 0; i < entries.size(); ++i) {
        if (entries[i].first.text() != nullptr) by_text.push_back(static_cast<uint32_t>(i));
    }
    const auto key = [&](uint32_t i) -> const std::string& {
        return entries[i].first.text()->bytes;
    };
    std::stable_sort(by_text.begin(), by_text.end(),
                     [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
    std::vector<bool> dropped(entries.size(), false);
    bool repeats = false;
    const auto replace = [&](size_t first, size_t again) {
        entries[first].second = std::move(entries[again].second);
        dropped[again] = repeats = true;
    };
    for (size_t i = 0, first = 0; i < by_text.size(); ++i) {
        if (i > 0 && key(by_text[i]) == key(by_text[first])) {
            replace(by_text[first], by_text[i]);
        } else {
            first = i;
        }
    }
    std::vector<size_t> others;  // keys that are not text: few, compared one by one
    for (size_t i = 0; i < entries.size(); ++i) {
        if (entries[i].first.text() != nullptr) continue;
        workspace.step(others.size());
        const auto found = std::find_if(others.begin(), others.end(), [&](size_t other) {
            return equal(workspace, entries[other].first, entries[i].first);
        });
        if (found == others.end()) {
            others.push_back(i);
        } else {
            replace(*found, i);
        }
    }
    if (repeats) {
        std::vector<std::pair<Value, Value>> kept;
        for (size_t i = 0; i < entries.size(); ++i) {
            if (!dropped[i]) kept.push_back(std::move(entries[i]));
        }
        fill_mapping(workspace, mapping, std::move(kept));
        return;
    }
    mapping.entries = std::move(entries);
    if (by_text.size() > kFewEntries) mapping.by_text = std::move(by_text);
}

}  // namespace granary::jinja

// SPDX-License-Identifier: GPL-3.0-or-later
// Attributes, elements, slices and iteration.
#include <algorithm>
#include <limits>

#include "engine/text/template/frame.h"
#include "engine/text/template/loop.h"
#include "engine/text/template/numbers.h"
#include "engine/text/template/operators.h"
#include "engine/text/template/text_form.h"
#include "engine/text/template/unicode.h"
#include "engine/text/template/workspace.h"

namespace granary::jinja {

namespace {

// Methods that change their object: Jinja's sandbox refuses them, and so does this engine.
bool changes_object(const Value& object, std::string_view name) {
    static constexpr std::string_view of_mapping[] = {"clear", "pop", "popitem", "setdefault",
                                                      "update"};
    static constexpr std::string_view of_list[] = {"append", "clear",  "extend",  "insert",
                                                   "pop",    "remove", "reverse", "sort"};
    if (object.mapping() != nullptr) {
        return std::find(std::begin(of_mapping), std::end(of_mapping), name) !=
               std::end(of_mapping);
    }
    const Sequence* sequence = object.sequence();
    return sequence != nullptr && sequence->flavor == Sequence::Flavor::list &&
           std::find(std::begin(of_list), std::end(of_list), name) != std::end(of_list);
}

bool is_number_attribute(std::string_view name) {
    static constexpr std::string_view names[] = {
        "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
        "from_bytes",       "fromhex",   "hex",        "imag",      "is_integer",
        "numerator",        "real",      "to_bytes"};
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// The owner in messages about what it lacks.
const char* owner_name(const Value& object) {
    if (object.is_none()) return "None";
    if (object.text() != nullptr) return "str object";
    if (object.mapping() != nullptr) return "dict object";
    if (object.sequence() != nullptr) {
        return object.sequence()->flavor == Sequence::Flavor::tuple ? "tuple object"
                                                                    : "list object";
    }
    if (object.as<bool>() != nullptr) return "bool object";
    if (object.as<double>() != nullptr) return "float object";
    if (object.is_number()) return "int object";
    return type_name(object);
}

// Index from the end if negative; nothing if out of range.
std::optional<size_t> position(int64_t index, size_t size) {
    if (index < 0) index += static_cast<int64_t>(size);
    if (index < 0 || index >= static_cast<int64_t>(size)) return std::nullopt;
    return static_cast<size_t>(index);
}

struct Bounds {
    int64_t start, stop, step;
};

// Python's slice.indices.
Bounds resolve(const Value* start, const Value* stop_value, const Value* step, size_t size) {
    const auto number = [](const Value* v) -> std::optional<int64_t> {
        if (v == nullptr || v->is_none()) return std::nullopt;
        refuse_absent(*v);
        const auto i = as_integer(*v);
        if (!i) stop("slice indices must be integers or None");
        return i;
    };
    const auto length = static_cast<int64_t>(size);
    Bounds b{0, 0, number(step).value_or(1)};
    if (b.step == 0) stop("slice step cannot be zero");
    b.step = std::max(b.step, -std::numeric_limits<int64_t>::max());
    const bool back = b.step < 0;
    const auto clamp = [&](std::optional<int64_t> given, int64_t fallback) {
        if (!given) return fallback;
        int64_t value = *given < 0 ? *given + length : *given;
        if (value < 0) value = back ? -1 : 0;
        if (value >= length) value = back ? length - 1 : length;
        return value;
    };
    b.start = clamp(number(start), back ? length - 1 : 0);
    b.stop = clamp(number(stop_value), back ? -1 : length);
    return b;
}

template <class Visit>
void walk(const Bounds& b, Visit visit) {
    for (int64_t i = b.start; b.step > 0 ? i < b.stop : i > b.stop;) {
        visit(static_cast<size_t>(i));
        if (__builtin_add_overflow(i, b.step, &i)) return;
    }
}

Value slice_text(Workspace& workspace, const Text& text, const Value* start, const Value* end,
                 const Value* step) {
    workspace.scan(text.bytes.size());
    const size_t size = count_characters(text.bytes);
    const Bounds b = resolve(start, end, step, size);
    const std::string_view bytes = text.bytes;
    if (b.step == 1) {
        if (b.start >= b.stop) return workspace.text({}, text.markup);
        const size_t from = offset_of(bytes, static_cast<size_t>(b.start));
        const size_t count = static_cast<size_t>(b.stop - b.start);
        return workspace.text(std::string(bytes.substr(from, offset_of(bytes.substr(from), count))),
                              text.markup);
    }
    std::vector<uint32_t> offsets;  // of all characters
    if (size != bytes.size()) {
        offsets.reserve(size + 1);
        for (size_t at = 0; at < bytes.size();) {
            offsets.push_back(static_cast<uint32_t>(at));
            decode(bytes, at);
        }
        offsets.push_back(static_cast<uint32_t>(bytes.size()));
    }
    std::string out;
    walk(b, [&](size_t i) {
        if (offsets.empty()) {
            out += bytes[i];
        } else {
            out += bytes.substr(offsets[i], offsets[i + 1] - offsets[i]);
        }
    });
    return workspace.text(std::move(out), text.markup);
}

}  // namespace

std::optional<Value> member(Workspace& workspace, const Value& object, std::string_view name) {
    if (Namespace* space = object.name_space()) {
        workspace.step(space->attributes.size() / 8);
        const Value* found = space->find(name);
        return found != nullptr ? std::optional<Value>(*found) : std::nullopt;
    }
    if (Loop* loop = object.loop()) return loop_attribute(workspace, object, *loop, name);
    if (name.starts_with("__") || changes_object(object, name)) {
        return workspace.absent(Absence::Why::unsafe, type_name(object), std::string(name));
    }
    if (const Method method = find_method(object, name)) {
        auto function = std::make_shared<Function>();
        function->name = name;
        function->target = BoundMethod{method, object};
        return Value(Ref<const Function>(std::move(function)));
    }
    if (object.is_number() && is_number_attribute(name)) {
        stop("the number attribute '" + std::string(name) + "' is not supported",
             ErrorKind::unsupported);
    }
    const Function* function = object.function();
    if (function != nullptr && name == "name") return workspace.text(function->name);
    return std::nullopt;
}

Value attribute(Workspace& workspace, const Value& object, std::string_view name) {
    refuse_absent(object);
    if (auto own = member(workspace, object, name)) return std::move(*own);
    if (const Mapping* mapping = object.mapping()) {
        if (const Value* found = mapping->find(name)) return *found;
    }
    return workspace.absent(Absence::Why::attribute, owner_name(object), std::string(name));
}

Value subscript(Workspace& workspace, const Value& object, const Value& index) {
    refuse_absent(object);
    if (const Mapping* mapping = object.mapping()) {
        if (const Text* key = index.text()) {
            workspace.touch(key->bytes.size());
        } else {
            workspace.step(mapping->entries.size() / 4);
        }
        if (const Value* found = mapping->find(index)) return *found;
    } else if (const auto i = as_integer(index)) {
        const Sequence* sequence = object.sequence();
        const bool indexable = sequence != nullptr && (is_list_or_tuple(object) ||
                                                       sequence->flavor == Sequence::Flavor::range);
        if (indexable) {
            if (const auto at = position(*i, sequence->items.size())) return sequence->items[*at];
        } else if (const Text* text = object.text()) {
            workspace.scan(text->bytes.size());
            if (const auto at = position(*i, count_characters(text->bytes))) {
                size_t end = offset_of(text->bytes, *at);
                const size_t begin = end;
                decode(text->bytes, end);
                return workspace.text(text->bytes.substr(begin, end - begin), text->markup);
            }
        }
    }
    if (const Text* name = index.text()) {
        if (auto own = member(workspace, object, name->bytes)) return std::move(*own);
        return workspace.absent(Absence::Why::attribute, owner_name(object), name->bytes);
    }
    std::string element = index.is_number() ? repr(workspace, index) : type_name(index);
    return workspace.absent(Absence::Why::element, owner_name(object), std::move(element));
}

Value slice(Workspace& workspace, const Value& object, const Value* start, const Value* stop_value,
            const Value* step) {
    refuse_absent(object);
    if (const Text* text = object.text()) {
        return slice_text(workspace, *text, start, stop_value, step);
    }
    const Sequence* sequence = object.sequence();
    const bool range = sequence != nullptr && sequence->flavor == Sequence::Flavor::range;
    if (!is_list_or_tuple(object) && !range) {
        stop("'" + std::string(type_name(object)) + "' object cannot be sliced");
    }
    const Bounds b = resolve(start, stop_value, step, sequence->items.size());
    if (range) {
        const auto at = [&](int64_t i) { return sequence->start + i * sequence->step; };
        int64_t stride = 0;
        if (__builtin_mul_overflow(b.step, sequence->step, &stride)) {
            stop("slice step does not fit 64 bits", ErrorKind::unsupported);
        }
        return workspace.range(at(b.start), at(b.stop), stride);
    }
    std::vector<Value> items;
    walk(b, [&](size_t i) { items.push_back(sequence->items[i]); });
    workspace.step(items.size() / 8);
    return workspace.sequence(sequence->flavor, std::move(items));
}

std::vector<Value> iterate(Workspace& workspace, const Value& value) {
    std::vector<Value> items;
    if (value.absence() != nullptr) return items;
    if (const Sequence* sequence = value.sequence()) {
        workspace.step(sequence->items.size() / 8);
        return sequence->items;
    }
    if (const Mapping* mapping = value.mapping()) {
        workspace.step(mapping->entries.size() / 8);
        items.reserve(mapping->entries.size());
        for (const auto& [key, entry] : mapping->entries) items.push_back(key);
        return items;
    }
    if (const Text* text = value.text()) {
        const size_t count = count_characters(text->bytes);
        workspace.step(count);
        workspace.check_items(count);
        for (size_t at = 0; at < text->bytes.size();) {
            const size_t begin = at;
            decode(text->bytes, at);
            items.push_back(workspace.text(text->bytes.substr(begin, at - begin)));
        }
        return items;
    }
    if (Iterator* iterator = value.iterator()) {
        items.assign(iterator->items.begin() + static_cast<std::ptrdiff_t>(iterator->next),
                     iterator->items.end());
        iterator->next = iterator->items.size();
        workspace.step(items.size() / 8);
        return items;
    }
    if (Loop* loop = value.loop()) {
        while (loop->advance()) items.push_back(loop->current);
        return items;
    }
    stop("'" + std::string(type_name(value)) + "' object is not iterable");
}

std::optional<size_t> length(const Value& value) {
    if (value.absence() != nullptr) return 0;
    if (const Text* text = value.text()) return count_characters(text->bytes);
    if (const Sequence* sequence = value.sequence()) return sequence->items.size();
    if (const Mapping* mapping = value.mapping()) return mapping->entries.size();
    if (Loop* loop = value.loop()) return static_cast<size_t>(loop->count());
    return std::nullopt;
}

}  // namespace granary::jinja

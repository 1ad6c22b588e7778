// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/template/value.h"

#include <algorithm>

#include "engine/text/template/frame.h"
#include "engine/text/template/operators.h"

namespace granary::jinja {

std::string Absence::message() const {
    switch (why) {
        case Why::variable:
            return "'" + name + "' is undefined";
        case Why::attribute:
            return "'" + std::string(owner) + "' has no attribute '" + name + "'";
        case Why::element:
            return std::string(owner) + " has no element " + name;
        case Why::unsafe:
            return "access to attribute '" + name + "' of '" + owner +
                   "' is unsafe: templates cannot change their values";
        case Why::hint:
            break;
    }
    return name;
}

const Value* Mapping::find(std::string_view key) const {
    const auto text_of = [this](size_t i) { return entries[i].first.text(); };
    if (!by_text.empty()) {
        const auto found = std::lower_bound(
            by_text.begin(), by_text.end(), key,
            [&](uint32_t i, std::string_view wanted) { return text_of(i)->bytes < wanted; });
        if (found == by_text.end() || text_of(*found)->bytes != key) return nullptr;
        return &entries[*found].second;
    }
    for (size_t i = 0; i < entries.size(); ++i) {
        const Text* text = text_of(i);
        if (text != nullptr && text->bytes == key) return &entries[i].second;
    }
    return nullptr;
}

const Value* Mapping::find(const Value& key) const {
    if (const Text* text = key.text()) return find(std::string_view(text->bytes));
    for (const auto& [k, value] : entries) {
        if (k.text() == nullptr && same_key(k, key)) return &value;
    }
    return nullptr;
}

Value* Namespace::find(std::string_view name) {
    for (auto& [key, value] : attributes) {
        if (key == name) return &value;
    }
    return nullptr;
}

int depth_of(const Value& value) {
    if (const Sequence* sequence = value.sequence()) return sequence->depth;
    if (const Mapping* mapping = value.mapping()) return mapping->depth;
    if (const Iterator* iterator = value.iterator()) return iterator->depth;
    if (const Function* function = value.function()) {
        const auto* bound = std::get_if<BoundMethod>(&function->target);
        return bound != nullptr ? depth_of(bound->self) + 1 : 0;
    }
    return 0;
}

const char* type_name(const Value& value) {
    struct Visitor {
        const char* operator()(const Ref<const Absence>&) const { return "Undefined"; }
        const char* operator()(None) const { return "NoneType"; }
        const char* operator()(bool) const { return "bool"; }
        const char* operator()(int64_t) const { return "int"; }
        const char* operator()(uint64_t) const { return "int"; }
        const char* operator()(double) const { return "float"; }
        const char* operator()(const Ref<const Text>& t) const {
            return t->markup ? "Markup" : "str";
        }
        const char* operator()(const Ref<const Sequence>& s) const {
            switch (s->flavor) {
                case Sequence::Flavor::tuple:
                    return "tuple";
                case Sequence::Flavor::range:
                    return "range";
                case Sequence::Flavor::keys:
                    return "dict_keys";
                case Sequence::Flavor::values:
                    return "dict_values";
                case Sequence::Flavor::items:
                    return "dict_items";
                case Sequence::Flavor::list:
                    break;
            }
            return "list";
        }
        const char* operator()(const Ref<const Mapping>&) const { return "dict"; }
        const char* operator()(const Ref<Namespace>&) const { return "Namespace"; }
        const char* operator()(const Ref<Iterator>&) const { return "generator"; }
        const char* operator()(const Ref<const Function>& f) const {
            return std::holds_alternative<Closure>(f->target) ? "Macro" : "function";
        }
        const char* operator()(const Ref<Loop>&) const { return "LoopContext"; }
    };
    return std::visit(Visitor{}, value.data());
}

bool truthy(const Value& value) {
    struct Visitor {
        bool operator()(const Ref<const Absence>&) const { return false; }
        bool operator()(None) const { return false; }
        bool operator()(bool b) const { return b; }
        bool operator()(int64_t i) const { return i != 0; }
        bool operator()(uint64_t) const { return true; }
        bool operator()(double d) const { return d != 0; }
        bool operator()(const Ref<const Text>& t) const { return !t->bytes.empty(); }
        bool operator()(const Ref<const Sequence>& s) const { return !s->items.empty(); }
        bool operator()(const Ref<const Mapping>& m) const { return !m->entries.empty(); }
        bool operator()(const Ref<Namespace>&) const { return true; }
        bool operator()(const Ref<Iterator>&) const { return true; }
        bool operator()(const Ref<const Function>&) const { return true; }
        bool operator()(const Ref<Loop>&) const { return true; }
    };
    return std::visit(Visitor{}, value.data());
}

}  // namespace granary::jinja

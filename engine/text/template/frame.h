// SPDX-License-Identifier: GPL-3.0-or-later
// Variables of one scope, functions, and the state of a running loop.
#pragma once

#include <functional>
#include <utility>
#include <variant>
#include <vector>

#include "engine/text/template/ast.h"
#include "engine/text/template/value.h"

namespace granary::jinja {

struct Frame {
    Ref<Frame> parent;  // null: the template's own scope
    std::vector<std::pair<NameId, Value>> slots;

    Value* find(NameId name) {  // in this scope alone
        for (auto& [id, value] : slots) {
            if (id == name) return &value;
        }
        return nullptr;
    }
    void set(NameId name, Value value) {
        if (Value* slot = find(name)) {
            *slot = std::move(value);
        } else {
            slots.emplace_back(name, std::move(value));
        }
    }
};

struct BoundMethod {
    Method method;
    Value self;
};
struct Closure {
    const Macro* macro;
    Ref<Frame> frame;  // where the macro was defined
};

struct Function {
    std::string name;
    std::variant<Global, BoundMethod, Closure> target;
};

// The variable `loop`.
struct Loop {
    Value iterable;          // keeps items alive
    std::vector<Value> own;  // items where the iterable has no list of its own
    const std::vector<Value>* items = nullptr;
    bool sized = false;                          // the length is known before the end
    std::function<bool(const Value&)> accepts;   // the loop's filter; may be empty
    std::function<Value(const Value&)> recurse;  // of a recursive loop
    size_t next = 0;                             // first item not yet pulled
    int64_t index0 = -1;
    int64_t length = -1;       // -1: not known yet
    std::vector<Value> ahead;  // pulled, but not yet reached, in reverse order
    Value before, current;
    bool has_changed_value = false;
    Value changed_value;
    int depth0 = 0;

    bool pull(Value& out);  // next item that the filter accepts
    bool advance();         // false at the end; sets current
    const Value* peek();    // the item after the current one, or null
    int64_t count();        // of all items
    void release();         // lets go of all items: the loop is over
};

}  // namespace granary::jinja

// SPDX-License-Identifier: GPL-3.0-or-later
// Values of the template language. Text, sequences and mappings are immutable and shared; a
// namespace alone can change. Values of a rendering are charged to its Budget.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/text/template/budget.h"

namespace granary::jinja {

class Value;
struct Text;
struct Sequence;
struct Mapping;
struct Namespace;
struct Iterator;
struct Function;
struct Loop;

template <class T>
using Ref = std::shared_ptr<T>;

// The absent value: what it would have been, for the message if it is used.
struct Absence {
    enum class Why : uint8_t {
        variable,   // name is not set
        attribute,  // owner has no attribute `name`
        element,    // owner has no element `name` (as repr)
        unsafe,     // an attribute that would change its owner
        hint,       // name is the whole message
    };
    Why why;
    const char* owner;  // type name
    std::string name;

    std::string message() const;
};

struct None {};

class Value {
  public:
    using Data = std::variant<Ref<const Absence>, None, bool, int64_t, uint64_t, double,
                              Ref<const Text>, Ref<const Sequence>, Ref<const Mapping>,
                              Ref<Namespace>, Ref<Iterator>, Ref<const Function>, Ref<Loop>>;

    Value() : data_(None{}) {}
    template <class T>
    requires std::is_constructible_v<Data, T> &&
        (!std::is_same_v<std::decay_t<T>, Value>)&&(!std::is_pointer_v<std::decay_t<T>>)
            Value(T data)
        : data_(std::move(data)) {}

    // Null if this is something else.
    template <class T>
    const T* as() const {
        return std::get_if<T>(&data_);
    }
    const Text* text() const { return get<Ref<const Text>>(); }
    const Sequence* sequence() const { return get<Ref<const Sequence>>(); }
    const Mapping* mapping() const { return get<Ref<const Mapping>>(); }
    Namespace* name_space() const { return get<Ref<Namespace>>(); }
    Iterator* iterator() const { return get<Ref<Iterator>>(); }
    const Function* function() const { return get<Ref<const Function>>(); }
    Loop* loop() const { return get<Ref<Loop>>(); }
    const Absence* absence() const { return get<Ref<const Absence>>(); }

    bool is_none() const { return std::holds_alternative<None>(data_); }
    bool is_number() const {  // as Python's numbers.Number, of which bool is one
        return as<bool>() || as<int64_t>() || as<uint64_t>() || as<double>();
    }
    const Data& data() const { return data_; }

  private:
    template <class R>
    auto get() const -> decltype(std::declval<R>().get()) {
        const R* ref = std::get_if<R>(&data_);
        return ref ? ref->get() : nullptr;
    }
    Data data_;
};

// uint64_t holds only integers above INT64_MAX, which a context may contain.

struct Text {
    std::string bytes;    // UTF-8
    bool markup = false;  // went through `safe` or `escape`
    Charge charge;
};

struct Sequence {
    enum class Flavor : uint8_t { list, tuple, range, keys, values, items };
    Flavor flavor = Flavor::list;
    std::vector<Value> items;
    int64_t start = 0, stop = 0, step = 1;  // of a range
    int depth = 1;
    Charge charge;
};

struct Mapping {
    std::vector<std::pair<Value, Value>> entries;  // in order of insertion, keys distinct
    std::vector<uint32_t> by_text;  // entries with text keys, sorted; if there are many
    int depth = 1;
    Charge charge;

    const Value* find(std::string_view key) const;
    const Value* find(const Value& key) const;  // numbers equal by value
};

struct Namespace {
    std::vector<std::pair<std::string, Value>> attributes;
    Charge charge;

    Value* find(std::string_view name);
};

// What Jinja's lazy filters give: it can be walked once.
struct Iterator {
    std::vector<Value> items;
    size_t next = 0;
    int depth = 1;
    Charge charge;
};

int depth_of(const Value& value);
const char* type_name(const Value& value);  // "str", "dict", ... as Python says
bool truthy(const Value& value);

}  // namespace granary::jinja

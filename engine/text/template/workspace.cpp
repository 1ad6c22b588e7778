// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/template/workspace.h"

#include <algorithm>

#include "engine/text/template/frame.h"
#include "engine/text/template/operators.h"

namespace granary::jinja {

namespace {

// What a heap block costs besides its content: control block and allocator.
constexpr size_t kBlock = 48;

}  // namespace

Workspace::~Workspace() {
    for (const auto& space : namespaces_) space->attributes.clear();
    for (const auto& frame : frames_) frame->slots.clear();
}

void Workspace::out_of_steps() const {
    stop("the template does not end: stopped after " + std::to_string(limits_.steps) + " steps",
         ErrorKind::refused);
}

void Workspace::check_text(uint64_t bytes) const {
    if (bytes > limits_.text_bytes) {
        stop("the template makes a text of more than " + format_bytes(limits_.text_bytes),
             ErrorKind::refused);
    }
}

void Workspace::check_items(uint64_t count) const {
    if (count > limits_.items) {
        stop("the template makes a list of more than " + std::to_string(limits_.items) + " items",
             ErrorKind::refused);
    }
}

int Workspace::depth_above(const std::vector<Value>& items) const {
    int depth = 0;
    for (const Value& item : items) depth = std::max(depth, depth_of(item));
    if (depth >= limits_.value_depth) {
        stop("the template nests values deeper than " + std::to_string(limits_.value_depth),
             ErrorKind::refused);
    }
    return depth + 1;
}

Value Workspace::text(std::string bytes, bool markup) {
    check_text(bytes.size());
    auto text = std::make_shared<Text>();
    text->charge = Charge(budget_, sizeof(Text) + kBlock + bytes.capacity());
    text->bytes = std::move(bytes);
    text->markup = markup;
    return Ref<const Text>(std::move(text));
}

Value Workspace::sequence(Sequence::Flavor flavor, std::vector<Value> items) {
    check_items(items.size());
    step(items.size() / 8);
    auto sequence = std::make_shared<Sequence>();
    sequence->charge =
        Charge(budget_, sizeof(Sequence) + kBlock + items.capacity() * sizeof(Value));
    sequence->flavor = flavor;
    sequence->depth = depth_above(items);
    sequence->items = std::move(items);
    return Ref<const Sequence>(std::move(sequence));
}

Value Workspace::range(int64_t start, int64_t stop_at, int64_t step_by) {
    if (step_by == 0) stop("range() arg 3 must not be zero");
    const auto distance = step_by > 0 ? static_cast<__int128_t>(stop_at) - start
                                      : static_cast<__int128_t>(start) - stop_at;
    const auto stride =
        step_by > 0 ? static_cast<__int128_t>(step_by) : -static_cast<__int128_t>(step_by);
    const auto count = distance <= 0 ? 0 : (distance + stride - 1) / stride;
    if (count > limits_.range_items) {
        stop("range too big: more than " + std::to_string(limits_.range_items) + " items",
             ErrorKind::refused);
    }
    step(static_cast<uint64_t>(count));
    std::vector<Value> items;
    items.reserve(static_cast<size_t>(count));
    for (__int128_t i = 0; i < count; ++i) {
        items.emplace_back(static_cast<int64_t>(start + i * step_by));
    }
    auto sequence = std::make_shared<Sequence>();
    sequence->charge =
        Charge(budget_, sizeof(Sequence) + kBlock + items.capacity() * sizeof(Value));
    sequence->flavor = Sequence::Flavor::range;
    sequence->items = std::move(items);
    sequence->start = start;
    sequence->stop = stop_at;
    sequence->step = step_by;
    return Ref<const Sequence>(std::move(sequence));
}

Value Workspace::mapping(std::vector<std::pair<Value, Value>> entries) {
    check_items(entries.size());
    step(entries.size() / 4);
    auto mapping = std::make_shared<Mapping>();
    fill_mapping(*this, *mapping, std::move(entries));
    mapping->charge =
        Charge(budget_, sizeof(Mapping) + kBlock + mapping->entries.capacity() * 2 * sizeof(Value) +
                            mapping->by_text.capacity() * sizeof(uint32_t));
    int depth = 0;
    for (const auto& [key, value] : mapping->entries) {
        depth = std::max({depth, depth_of(key), depth_of(value)});
    }
    if (depth >= limits_.value_depth) {
        stop("the template nests values deeper than " + std::to_string(limits_.value_depth),
             ErrorKind::refused);
    }
    mapping->depth = depth + 1;
    return Ref<const Mapping>(std::move(mapping));
}

Value Workspace::iterator(std::vector<Value> items) {
    check_items(items.size());
    auto iterator = std::make_shared<Iterator>();
    iterator->charge =
        Charge(budget_, sizeof(Iterator) + kBlock + items.capacity() * sizeof(Value));
    iterator->depth = depth_above(items);
    iterator->items = std::move(items);
    return Ref<Iterator>(std::move(iterator));
}

Value Workspace::name_space(std::vector<std::pair<std::string, Value>> attributes) {
    auto space = std::make_shared<Namespace>();
    space->charge = Charge(budget_, sizeof(Namespace) + kBlock + sizeof(Ref<Namespace>));
    space->attributes = std::move(attributes);
    namespaces_.push_back(space);
    return Ref<Namespace>(std::move(space));
}

Value Workspace::absent(Absence::Why why, const char* owner, std::string name) {
    return Ref<const Absence>(std::make_shared<Absence>(Absence{why, owner, std::move(name)}));
}

void Workspace::keep_frame(Ref<Frame> frame) {
    if (!frames_.empty() && frames_.back() == frame) return;
    budget_.take(sizeof(Frame) + kBlock);  // for the whole rendering
    frames_.push_back(std::move(frame));
}

void TextBuilder::repeat(std::string_view part, int64_t count) {
    if (count <= 0 || part.empty()) return;
    if (static_cast<uint64_t>(count) > workspace_.limits().text_bytes) {
        workspace_.check_text(static_cast<uint64_t>(count));
    }
    const uint64_t added = part.size() * static_cast<uint64_t>(count);
    reserve(text_.size() + added);
    workspace_.touch(added);
    text_.reserve(text_.size() + added);
    for (int64_t i = 0; i < count; ++i) text_ += part;
}

}  // namespace granary::jinja

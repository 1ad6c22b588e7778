// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/template/loop.h"

#include "engine/text/template/arguments.h"
#include "engine/text/template/frame.h"
#include "engine/text/template/operators.h"
#include "engine/text/template/workspace.h"

namespace granary::jinja {

bool Loop::pull(Value& out) {
    while (items != nullptr && next < items->size()) {
        out = (*items)[next++];
        if (!accepts || accepts(out)) return true;
    }
    return false;
}

bool Loop::advance() {
    if (index0 >= 0) before = std::move(current);
    if (!ahead.empty()) {
        current = std::move(ahead.back());
        ahead.pop_back();
    } else if (!pull(current)) {
        return false;
    }
    ++index0;
    return true;
}

const Value* Loop::peek() {
    if (ahead.empty()) {
        Value item;
        if (!pull(item)) return nullptr;
        ahead.push_back(std::move(item));
    }
    return &ahead.back();
}

int64_t Loop::count() {
    if (length >= 0) return length;
    if (sized) {
        length = items != nullptr ? static_cast<int64_t>(items->size()) : 0;
        return length;
    }
    std::vector<Value> rest(ahead.rbegin(), ahead.rend());
    for (Value item; pull(item);) rest.push_back(item);
    ahead.assign(rest.rbegin(), rest.rend());
    length = index0 + 1 + static_cast<int64_t>(ahead.size());
    return length;
}

void Loop::release() {
    items = nullptr;
    own.clear();
    ahead.clear();
    accepts = nullptr;
    recurse = nullptr;
    iterable = before = current = changed_value = Value();
}

namespace {

Value cycle(Workspace&, const Value& self, const Arguments& arguments) {
    if (arguments.positional.empty()) stop("no items for cycling given");
    const auto i = static_cast<size_t>(self.loop()->index0);
    return arguments.positional[i % arguments.positional.size()];
}

Value changed(Workspace& workspace, const Value& self, const Arguments& arguments) {
    Loop& loop = *self.loop();
    Value now = workspace.tuple(arguments.positional);
    if (loop.has_changed_value && equal(workspace, loop.changed_value, now)) return false;
    loop.has_changed_value = true;
    loop.changed_value = std::move(now);
    return true;
}

Value method(const Value& self, std::string name, Method target) {
    auto function = std::make_shared<Function>();
    function->name = std::move(name);
    function->target = BoundMethod{target, self};
    return Ref<const Function>(std::move(function));
}

}  // namespace

std::optional<Value> loop_attribute(Workspace& workspace, const Value& self, Loop& loop,
                                    std::string_view name) {
    if (name == "index") return loop.index0 + 1;
    if (name == "index0") return loop.index0;
    if (name == "first") return loop.index0 == 0;
    if (name == "last") return loop.peek() == nullptr;
    if (name == "length") return loop.count();
    if (name == "revindex") return loop.count() - loop.index0;
    if (name == "revindex0") return loop.count() - loop.index0 - 1;
    if (name == "depth") return int64_t{loop.depth0 + 1};
    if (name == "depth0") return int64_t{loop.depth0};
    if (name == "previtem") {
        if (loop.index0 > 0) return loop.before;
        return workspace.absent(Absence::Why::hint, "loop", "there is no previous item");
    }
    if (name == "nextitem") {
        if (const Value* item = loop.peek()) return *item;
        return workspace.absent(Absence::Why::hint, "loop", "there is no next item");
    }
    if (name == "cycle") return method(self, "cycle", cycle);
    if (name == "changed") return method(self, "changed", changed);
    return std::nullopt;
}

}  // namespace granary::jinja

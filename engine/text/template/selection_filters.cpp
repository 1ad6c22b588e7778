// SPDX-License-Identifier: GPL-3.0-or-later
// map, select, reject and their forms for attributes. Jinja makes their results lazily; here all
// items are made at once, and the result is still one that can be walked only once.
#include <algorithm>

#include "engine/text/template/arguments.h"
#include "engine/text/template/attribute_path.h"
#include "engine/text/template/filters.h"
#include "engine/text/template/operators.h"
#include "engine/text/template/workspace.h"

namespace granary::jinja {

namespace {

// Arguments behind the first `count` positional ones.
Arguments without_first(const Arguments& arguments, size_t count) {
    Arguments rest = arguments;
    rest.positional.erase(rest.positional.begin(),
                          rest.positional.begin() +
                              static_cast<std::ptrdiff_t>(std::min(count, rest.positional.size())));
    return rest;
}

const std::string& name_argument(const Value& value, const char* filter) {
    if (value.text() == nullptr) stop(std::string(filter) + " needs a name as its first argument");
    return value.text()->bytes;
}

// As in Jinja, anything false counts as empty, even what could not be walked.
std::vector<Value> items_of(Workspace& workspace, const Value& input) {
    return truthy(input) ? iterate(workspace, input) : std::vector<Value>();
}

Value map(Workspace& workspace, const Value& input, const Arguments& arguments) {
    std::vector<Value> items = items_of(workspace, input);
    if (arguments.positional.empty()) {
        const Bound args("map", arguments, {"attribute", "default"});
        if (!args.given(0)) stop("map requires a filter argument");
        const AttributePath path(workspace, args[0]);
        for (Value& item : items) item = path.of(workspace, item, args[1]);
        return workspace.iterator(std::move(items));
    }
    const std::string& name = name_argument(arguments.positional[0], "map");
    const Filter filter = find_filter(name);
    if (filter == nullptr) {
        stop("the filter '" + name + "' is not supported", ErrorKind::unsupported);
    }
    const Arguments rest = without_first(arguments, 1);
    for (Value& item : items) {
        workspace.step();
        item = filter(workspace, item, rest);
    }
    return workspace.iterator(std::move(items));
}

template <bool Keep, bool ByAttribute>
Value select(Workspace& workspace, const Value& input, const Arguments& arguments) {
    constexpr size_t skipped = ByAttribute ? 1 : 0;
    const auto& given = arguments.positional;
    if (given.size() < skipped) stop("Missing parameter for attribute name");
    const AttributePath path(workspace, ByAttribute ? given.data() : nullptr);
    Test test = nullptr;  // null: the item's own truth
    if (given.size() > skipped) {
        const std::string& name = name_argument(given[skipped], "select");
        test = find_test(name);
        if (test == nullptr) {
            stop("the test '" + name + "' is not supported", ErrorKind::unsupported);
        }
    }
    const Arguments rest = without_first(arguments, skipped + 1);
    std::vector<Value> kept;
    for (Value& item : items_of(workspace, input)) {
        workspace.step();
        const Value tested = path.of(workspace, item);
        const bool passes = test != nullptr ? test(workspace, tested, rest) : truthy(tested);
        if (passes == Keep) kept.push_back(std::move(item));
    }
    return workspace.iterator(std::move(kept));
}

constexpr std::pair<std::string_view, Filter> kFilters[] = {
    {"map", map},
    {"reject", select<false, false>},
    {"rejectattr", select<false, true>},
    {"select", select<true, false>},
    {"selectattr", select<true, true>},
};

}  // namespace

Filter find_selection_filter(std::string_view name) {
    const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                     [name](const auto& filter) { return filter.first == name; });
    return found != std::end(kFilters) ? found->second : nullptr;
}

}  // namespace granary::jinja

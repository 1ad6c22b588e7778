// SPDX-License-Identifier: GPL-3.0-or-later
// Functions that every template has.
#include <algorithm>

#include "engine/text/template/arguments.h"
#include "engine/text/template/builtins.h"
#include "engine/text/template/clock.h"
#include "engine/text/template/operators.h"
#include "engine/text/template/text_form.h"
#include "engine/text/template/workspace.h"

namespace granary::jinja {

namespace {

Value range(Workspace& workspace, const Arguments& arguments) {
    const Bound args("range", arguments, {"start", "stop", "step"}, 1);
    if (!args.given(1)) return workspace.range(0, args.integer(0), 1);
    return workspace.range(args.integer(0), args.integer(1), args.integer(2, 1));
}

// Entries of dict() and namespace(): of a mapping or of pairs, then of keywords.
std::vector<std::pair<Value, Value>> entries_of(Workspace& workspace, const char* name,
                                                const Arguments& arguments) {
    std::vector<std::pair<Value, Value>> entries;
    if (arguments.positional.size() > 1) {
        stop(std::string(name) + "() takes at most 1 positional argument");
    }
    for (const Value& source : arguments.positional) {
        if (const Mapping* mapping = source.mapping()) {
            entries = mapping->entries;
            continue;
        }
        for (const Value& pair : iterate(workspace, source)) {
            std::vector<Value> items = iterate(workspace, pair);
            if (items.size() != 2) stop(std::string(name) + "() needs pairs");
            entries.emplace_back(std::move(items[0]), std::move(items[1]));
        }
    }
    for (const auto& [key, value] : arguments.named) {
        entries.emplace_back(workspace.text(key), value);
    }
    return entries;
}

Value dict(Workspace& workspace, const Arguments& arguments) {
    return workspace.mapping(entries_of(workspace, "dict", arguments));
}

Value name_space(Workspace& workspace, const Arguments& arguments) {
    const Value made = workspace.mapping(entries_of(workspace, "namespace", arguments));
    std::vector<std::pair<std::string, Value>> attributes;
    for (const auto& [key, value] : made.mapping()->entries) {
        if (key.text() == nullptr) stop("namespace() needs text keys");
        attributes.emplace_back(key.text()->bytes, value);
    }
    return workspace.name_space(std::move(attributes));
}

Value raise_exception(Workspace& workspace, const Arguments& arguments) {
    const Bound args("raise_exception", arguments, {"message"}, 1);
    Failure failure;
    failure.what = to_text(workspace, *args[0]);
    failure.raised = true;
    throw failure;
}

Value strftime_now(Workspace& workspace, const Arguments& arguments) {
    const Bound args("strftime_now", arguments, {"format"}, 1);
    workspace.check_text(args.text(0).size() * 16);
    return workspace.text(format_time(args.text(0), workspace.now()));
}

template <const char* const& Name>
Value unsupported(Workspace&, const Arguments&) {
    stop(std::string("the function '") + Name + "' is not supported", ErrorKind::unsupported);
}

constexpr const char* kCycler = "cycler";
constexpr const char* kJoiner = "joiner";
constexpr const char* kLipsum = "lipsum";
constexpr const char* kSelf = "self";
constexpr const char* kSuper = "super";

constexpr std::pair<std::string_view, Global> kGlobals[] = {
    {"range", range},
    {"dict", dict},
    {"namespace", name_space},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
    {"cycler", unsupported<kCycler>},
    {"joiner", unsupported<kJoiner>},
    {"lipsum", unsupported<kLipsum>},
    {"self", unsupported<kSelf>},
    {"super", unsupported<kSuper>},
};

}  // namespace

Global find_global(std::string_view name) {
    const auto* found = std::find_if(std::begin(kGlobals), std::end(kGlobals),
                                     [name](const auto& global) { return global.first == name; });
    return found != std::end(kGlobals) ? found->second : nullptr;
}

}  // namespace granary::jinja

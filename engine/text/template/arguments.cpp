// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/template/arguments.h"

#include <algorithm>

namespace granary::jinja {

Bound::Bound(std::string_view builtin, const Arguments& arguments,
             std::initializer_list<std::string_view> parameters, size_t required)
    : builtin_(builtin) {
    std::copy(parameters.begin(), parameters.end(), names_.begin());
    const std::string name(builtin);
    if (arguments.positional.size() > parameters.size()) {
        stop(name + "() takes at most " + std::to_string(parameters.size()) + " arguments, not " +
             std::to_string(arguments.positional.size()));
    }
    for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
    for (const auto& [key, value] : arguments.named) {
        const auto found = std::find(parameters.begin(), parameters.end(), key);
        if (found == parameters.end()) {
            stop(name + "() got an unexpected keyword argument '" + key + "'");
        }
        const auto i = static_cast<size_t>(found - parameters.begin());
        if (values_[i] != nullptr) stop(name + "() got '" + key + "' twice");
        values_[i] = &value;
    }
    for (size_t i = 0; i < required; ++i) {
        if (values_[i] == nullptr) {
            stop(name + "() lacks its argument '" + std::string(names_[i]) + "'");
        }
    }
}

int64_t Bound::integer(size_t i, int64_t fallback) const {
    if (values_[i] == nullptr) return fallback;
    if (const auto* number = values_[i]->as<int64_t>()) return *number;
    if (const auto* truth = values_[i]->as<bool>()) return *truth ? 1 : 0;
    wrong_type(i, "an integer");
}

std::string_view Bound::text(size_t i, std::string_view fallback) const {
    if (values_[i] == nullptr) return fallback;
    if (const Text* text = values_[i]->text()) return text->bytes;
    wrong_type(i, "a string");
}

bool Bound::truth(size_t i, bool fallback) const {
    return values_[i] == nullptr ? fallback : truthy(*values_[i]);
}

void Bound::wrong_type(size_t i, const char* wanted) const {
    const Value& value = *values_[i];
    if (const Absence* absence = value.absence()) stop(absence->message());
    stop(std::string(builtin_) + "() needs " + wanted + " as '" + std::string(names_[i]) +
         "', not '" + type_name(value) + "'");
}

}  // namespace granary::jinja

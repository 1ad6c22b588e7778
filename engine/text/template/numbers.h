// SPDX-License-Identifier: GPL-3.0-or-later
// Small questions about values that several operators ask.
#pragma once

#include <optional>

#include "engine/text/template/value.h"

namespace granary::jinja {

inline void refuse_absent(const Value& value) {
    if (const Absence* absence = value.absence()) stop(absence->message());
}

// Integers and truth values as an integer.
inline std::optional<int64_t> as_integer(const Value& value) {
    if (const auto* i = value.as<int64_t>()) return *i;
    if (const auto* b = value.as<bool>()) return *b ? 1 : 0;
    return std::nullopt;
}

inline double as_real(const Value& value) {
    if (const auto* d = value.as<double>()) return *d;
    if (const auto* u = value.as<uint64_t>()) return static_cast<double>(*u);
    return static_cast<double>(as_integer(value).value_or(0));
}

inline bool is_list_or_tuple(const Value& value) {
    const Sequence* s = value.sequence();
    return s != nullptr &&
           (s->flavor == Sequence::Flavor::list || s->flavor == Sequence::Flavor::tuple);
}

inline bool is_repeatable(const Value& value) {
    return value.text() != nullptr || is_list_or_tuple(value);
}

}  // namespace granary::jinja

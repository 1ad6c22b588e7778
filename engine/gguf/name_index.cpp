// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/gguf/name_index.h"

#include <algorithm>

namespace granary::gguf {

std::optional<size_t> NameIndex::sort() {
    std::sort(entries_.begin(), entries_.end());
    const auto twice = std::adjacent_find(
        entries_.begin(), entries_.end(),
        [](const auto& left, const auto& right) { return left.first == right.first; });
    if (twice == entries_.end()) return std::nullopt;
    return (twice + 1)->second;
}

std::optional<size_t> NameIndex::find(std::string_view name) const {
    const auto at = std::lower_bound(
        entries_.begin(), entries_.end(), name,
        [](const auto& entry, std::string_view wanted) { return entry.first < wanted; });
    if (at == entries_.end() || at->first != name) return std::nullopt;
    return at->second;
}

}  // namespace granary::gguf

// SPDX-License-Identifier: GPL-3.0-or-later
// Finds names in a list. Sorted, not hashed: a file chooses its names, and must not be able to
// choose ones that make us slow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace granary::gguf {

class NameIndex {
  public:
    void add(std::string_view name) {
        entries_.emplace_back(name, static_cast<uint32_t>(entries_.size()));
    }

    // Call once, after the last add. Gives the position of a name that stood earlier too.
    std::optional<size_t> sort();

    std::optional<size_t> find(std::string_view name) const;

  private:
    std::vector<std::pair<std::string_view, uint32_t>> entries_;
};

}  // namespace granary::gguf

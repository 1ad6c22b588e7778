// SPDX-License-Identifier: GPL-3.0-or-later
// Merging as its definition says it, on texts and without any cleverness: what the engine's
// tables, heap and word cache must agree with.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace granary::test {

// rank: the place of a pair in the order of merges, lowest first; nothing where it has none.
inline std::vector<std::string> merge_by_definition(
    std::vector<std::string> symbols,
    const std::function<std::optional<double>(const std::string&, const std::string&)>& rank) {
    while (true) {
        std::optional<double> best;
        size_t place = 0;
        for (size_t i = 0; i + 1 < symbols.size(); ++i) {
            const auto here = rank(symbols[i], symbols[i + 1]);
            if (here && (!best || *here < *best)) {
                best = here;
                place = i;
            }
        }
        if (!best) return symbols;
        symbols[place] += symbols[place + 1];
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(place) + 1);
    }
}

// Numbers that are the same on every machine.
class Random {
  public:
    explicit Random(uint32_t seed) : state_(seed) {}
    uint32_t below(uint32_t limit) {
        state_ = state_ * 1664525u + 1013904223u;
        return (state_ >> 8) % limit;
    }

  private:
    uint32_t state_;
};

}  // namespace granary::test

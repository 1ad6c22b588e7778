// SPDX-License-Identifier: GPL-3.0-or-later
// Texts to numbers: the token (or symbol) that a text is.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace granary::text {

// Open addressing, at most half full. It keeps views: the bytes behind them must outlive it.
class TextIndex {
  public:
    explicit TextIndex(size_t expected = 0);

    // False where the text is there already; the first one stays.
    bool insert(std::string_view text, int32_t value);
    int32_t find(std::string_view text) const;  // -1: not there

  private:
    struct Slot {
        uint32_t hash = 0;
        uint32_t entry = 0;  // index + 1 into entries_; 0: free
    };
    struct Entry {
        std::string_view text;
        int32_t value;
    };
    void grow();

    uint64_t seed_;
    std::vector<Slot> slots_;
    std::vector<Entry> entries_;
};

}  // namespace granary::text

// SPDX-License-Identifier: GPL-3.0-or-later
// Byte-pair merging, which byte-level BPE and SentencePiece share: of all neighbouring pairs that
// have a merge the one of lowest priority number is merged, the leftmost first, until none is left.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "granary/tokenizer.h"

namespace granary::text {

class MergeTable {
  public:
    static constexpr uint32_t no_merge = UINT32_MAX;
    struct Merge {
        uint32_t priority = no_merge;  // lowest first
        TokenId result = -1;
    };

    explicit MergeTable(size_t expected = 0);

    // The first merge of a pair stays. left, right >= 0; priority < no_merge.
    void add(TokenId left, TokenId right, Merge merge);
    Merge find(TokenId left, TokenId right) const;  // priority no_merge: none

  private:
    struct Slot {
        uint64_t pair = UINT64_MAX;  // free
        Merge merge;
    };
    size_t slot_of(uint64_t pair) const;
    void grow();

    uint64_t seed_;
    size_t used_ = 0;
    std::vector<Slot> slots_;
};

// Merges words; owns the work space, so one serves all words of a text. Not for several threads.
class Merger {
  public:
    explicit Merger(const MergeTable& table) : table_(table) {}

    // Merges the symbols in place and gives how many are left: O(n log n), 28 bytes a symbol.
    // Negative symbols never merge.
    size_t merge(std::span<TokenId> symbols);

  private:
    size_t merge_short(std::span<TokenId> symbols);
    size_t merge_long(std::span<TokenId> symbols);
    MergeTable::Merge merge_of(TokenId left, TokenId right) const {
        return left < 0 || right < 0 ? MergeTable::Merge{} : table_.find(left, right);
    }

    struct Link {
        uint32_t previous;
        uint32_t next;
    };
    const MergeTable& table_;
    std::vector<MergeTable::Merge> pairs_;  // of the symbol at an index and the one after it
    std::vector<Link> links_;
    std::vector<uint64_t> heap_;  // priority << 32 | index of the left symbol
};

}  // namespace granary::text

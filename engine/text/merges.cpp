// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/merges.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "engine/text/hash.h"

namespace granary::text {
namespace {

// Up to this many symbols searching them all is faster than keeping a heap.
constexpr size_t short_word = 48;

uint64_t pair_of(TokenId left, TokenId right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(size_t expected)
    : seed_(hash_seed() | 1), slots_(std::bit_ceil(std::max<size_t>(2 * expected, 16))) {}

size_t MergeTable::slot_of(uint64_t pair) const {
    const size_t mask = slots_.size() - 1;
    size_t at = fold_multiply(pair ^ seed_, hash_multiplier) & mask;
    while (slots_[at].pair != pair && slots_[at].pair != UINT64_MAX) at = (at + 1) & mask;
    return at;
}

void MergeTable::add(TokenId left, TokenId right, Merge merge) {
    if (2 * (used_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[slot_of(pair_of(left, right))];
    if (slot.pair != UINT64_MAX) return;
    slot = {pair_of(left, right), merge};
    ++used_;
}

MergeTable::Merge MergeTable::find(TokenId left, TokenId right) const {
    return slots_[slot_of(pair_of(left, right))].merge;
}

void MergeTable::grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
        if (slot.pair != UINT64_MAX) slots_[slot_of(slot.pair)] = slot;
    }
}

size_t Merger::merge(std::span<TokenId> symbols) {
    if (symbols.size() < 2) return symbols.size();
    return symbols.size() <= short_word ? merge_short(symbols) : merge_long(symbols);
}

size_t Merger::merge_short(std::span<TokenId> symbols) {
    size_t count = symbols.size();
    pairs_.resize(count - 1);
    for (size_t i = 0; i + 1 < count; ++i) pairs_[i] = merge_of(symbols[i], symbols[i + 1]);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; ++i) {
            if (pairs_[i].priority < pairs_[best].priority) best = i;
        }
        if (pairs_[best].priority == MergeTable::no_merge) break;
        symbols[best] = pairs_[best].result;
        std::copy(symbols.begin() + best + 2, symbols.begin() + count, symbols.begin() + best + 1);
        std::copy(pairs_.begin() + best + 1, pairs_.begin() + count - 1, pairs_.begin() + best);
        --count;
        if (best > 0) pairs_[best - 1] = merge_of(symbols[best - 1], symbols[best]);
        if (best + 1 < count) pairs_[best] = merge_of(symbols[best], symbols[best + 1]);
    }
    return count;
}

size_t Merger::merge_long(std::span<TokenId> symbols) {
    const uint32_t count = static_cast<uint32_t>(symbols.size());
    constexpr uint32_t none = UINT32_MAX;
    pairs_.assign(count, {});
    links_.resize(count);
    heap_.clear();
    const auto key = [&](uint32_t i) {
        return static_cast<uint64_t>(pairs_[i].priority) << 32 | i;
    };
    for (uint32_t i = 0; i < count; ++i) {
        links_[i] = {i == 0 ? none : i - 1, i + 1 == count ? none : i + 1};
        if (i + 1 < count) pairs_[i] = merge_of(symbols[i], symbols[i + 1]);
        if (pairs_[i].priority != MergeTable::no_merge) heap_.push_back(key(i));
    }
    const std::greater<uint64_t> lowest_first;
    std::make_heap(heap_.begin(), heap_.end(), lowest_first);
    const auto refresh = [&](uint32_t i) {
        const uint32_t next = links_[i].next;
        pairs_[i] = next == none ? MergeTable::Merge{} : merge_of(symbols[i], symbols[next]);
        if (pairs_[i].priority == MergeTable::no_merge) return;
        heap_.push_back(key(i));
        std::push_heap(heap_.begin(), heap_.end(), lowest_first);
    };
    while (!heap_.empty()) {
        std::pop_heap(heap_.begin(), heap_.end(), lowest_first);
        const uint64_t top = heap_.back();
        heap_.pop_back();
        const uint32_t left = static_cast<uint32_t>(top);
        // A key whose pair has changed meanwhile is stale. One with the same priority is as good
        // as fresh: order is by priority and place alone.
        if (top != key(left)) continue;
        const uint32_t right = links_[left].next;
        symbols[left] = pairs_[left].result;
        pairs_[right] = {};
        links_[left].next = links_[right].next;
        if (links_[left].next != none) links_[links_[left].next].previous = left;
        refresh(left);
        if (links_[left].previous != none) refresh(links_[left].previous);
    }
    size_t kept = 0;
    for (uint32_t i = 0; i != none; i = links_[i].next) symbols[kept++] = symbols[i];
    return kept;
}

}  // namespace granary::text

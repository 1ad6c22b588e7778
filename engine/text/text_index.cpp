// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/text_index.h"

#include <algorithm>
#include <bit>

#include "engine/text/hash.h"

namespace granary::text {

TextIndex::TextIndex(size_t expected)
    : seed_(hash_seed()), slots_(std::bit_ceil(std::max<size_t>(2 * expected, 16))) {
    entries_.reserve(expected);
}

bool TextIndex::insert(std::string_view text, int32_t value) {
    if (2 * (entries_.size() + 1) > slots_.size()) grow();
    const uint32_t hash = static_cast<uint32_t>(hash_bytes(text, seed_));
    const size_t mask = slots_.size() - 1;
    size_t at = hash & mask;
    for (; slots_[at].entry != 0; at = (at + 1) & mask) {
        if (slots_[at].hash == hash && entries_[slots_[at].entry - 1].text == text) return false;
    }
    entries_.push_back({text, value});
    slots_[at] = {hash, static_cast<uint32_t>(entries_.size())};
    return true;
}

int32_t TextIndex::find(std::string_view text) const {
    const uint32_t hash = static_cast<uint32_t>(hash_bytes(text, seed_));
    const size_t mask = slots_.size() - 1;
    for (size_t at = hash & mask; slots_[at].entry != 0; at = (at + 1) & mask) {
        const Entry& entry = entries_[slots_[at].entry - 1];
        if (slots_[at].hash == hash && entry.text == text) return entry.value;
    }
    return -1;
}

void TextIndex::grow() {
    std::vector<Slot> larger(slots_.size() * 2);
    const size_t mask = larger.size() - 1;
    for (const Slot& slot : slots_) {
        if (slot.entry == 0) continue;
        size_t at = slot.hash & mask;
        while (larger[at].entry != 0) at = (at + 1) & mask;
        larger[at] = slot;
    }
    slots_ = std::move(larger);
}

}  // namespace granary::text

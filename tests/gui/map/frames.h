// SPDX-License-Identifier: GPL-3.0-or-later
// Map frames as an engine publishes them, made by the test: fixed weights, workspace, an expert
// range with slots of different age, K/V that grows from the middle and a loan at the end.
#pragma once

#include <algorithm>
#include <cstdint>

#include "granary/telemetry.h"

namespace granary::test {

struct Card {
    uint32_t granules = 640;
    uint64_t granuleBytes = 64 << 10;
    uint32_t fixed = 105, workspace = 6;
    uint32_t kv = 0, loan = 0;  // granules now
    uint32_t kvPlaces = 128;
    uint32_t granulesPerSlot = 4;
    uint32_t layers = 8, experts = 32;
    uint32_t tick = 1000;
    uint32_t spare = 0, quarantined = 0, transfer = 0;
    double seconds = 1;
    uint64_t sequence = 1;
    uint32_t seed = 7;
};

// A number that looks like chance and is the same on every run.
inline uint32_t scrambled(uint32_t seed, uint32_t index) {
    uint64_t x = (uint64_t{seed} << 32 | index) + 0x9e3779b97f4a7c15ull;  // splitmix64
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return static_cast<uint32_t>(x ^ x >> 31);
}

inline void countClasses(MapFrame& frame) {
    frame.granules.fill(0);
    for (const GranuleWord word : frame.words)
        if (word.in_budget()) ++frame.granules[static_cast<size_t>(word.owner())];
}

inline MapFrame makeFrame(const Card& card) {
    MapFrame frame;
    frame.sequence = card.sequence;
    frame.seconds = card.seconds;
    frame.granule_bytes = card.granuleBytes;
    frame.experts_per_layer = card.experts;
    frame.words.resize(card.granules);
    frame.places.resize(card.granules);
    const uint32_t range = card.granules - card.fixed - card.workspace;
    frame.ranges = {{"fixed", card.fixed},
                    {"workspace", card.workspace},
                    {"experts", range},
                    {"K/V 1", std::max(card.kvPlaces, card.kv)}};
    uint32_t chance = 0;
    const auto random = [&] { return scrambled(card.seed, 1000000 + chance++); };
    uint32_t id = 0;
    for (uint32_t i = 0; i < card.fixed; ++i, ++id) {
        frame.words[id] = GranuleWord::make(Owner::fixed, 0, 0, 0, 0);
        frame.places[id] = {0, i};
    }
    for (uint32_t i = 0; i < card.workspace; ++i, ++id) {
        frame.words[id] = GranuleWord::make(Owner::workspace, 0, 0, 0, 0);
        frame.places[id] = {1, i};
    }
    // The range: experts, then what was given to K/V, then the loan at the end.
    const uint32_t experts = range - card.kv - card.loan;
    for (uint32_t place = 0; place < range; ++place, ++id) {
        const uint32_t slot = place / card.granulesPerSlot;
        const uint32_t hits = scrambled(card.seed, slot) % 14;
        const uint32_t age =
            hits == 0 ? 4000 : scrambled(card.seed + 1, slot) % (1u << (15 - hits));
        if (place < experts) {
            const uint32_t layer = slot % card.layers,
                           expert = scrambled(card.seed + 2, slot) % card.experts;
            const uint32_t use = card.tick > age ? card.tick - age : 0;
            frame.words[id] =
                GranuleWord::make(Owner::experts, 0, layer * card.experts + expert, hits, use);
            frame.places[id] = {2, place};
        } else if (place < experts + card.kv) {
            frame.words[id] = GranuleWord::make(Owner::kv, 0, (place - experts) / 8, 0, 0);
            frame.places[id] = {3, place - experts};
        } else {
            frame.words[id] = GranuleWord::make(Owner::loan, 0, 0, 0, 0);
            frame.places[id] = {2, place};
        }
    }
    const auto replaceExperts = [&](uint32_t count, GranuleWord word) {
        for (uint32_t i = 0; i < count; ++i) {
            const uint32_t at = card.fixed + card.workspace + (random() % experts);
            frame.words[at] = word;
            frame.places[at] = {};
        }
    };
    replaceExperts(card.spare, GranuleWord::make(Owner::spare, 0, 0, 0, 0));
    replaceExperts(card.quarantined, GranuleWord::make(Owner::quarantined, 0, 0, 0, 0));
    for (uint32_t i = 0; i < card.transfer; ++i) {
        GranuleWord& word = frame.words[card.fixed + card.workspace + random() % experts];
        word = GranuleWord::make(word.owner(), GranuleWord::in_transfer, word.id(),
                                 word.hits_log2(), card.tick);
    }
    countClasses(frame);
    return frame;
}

// A 16 GiB card with 2 MiB granules.
inline Card bigCard() {
    Card card;
    card.granules = 8192;
    card.granuleBytes = 2 << 20;
    card.fixed = 980;
    card.workspace = 90;
    card.kv = 1400;
    card.loan = 520;
    card.kvPlaces = 2600;
    card.granulesPerSlot = 1;
    card.layers = 48;
    card.experts = 128;
    return card;
}

}  // namespace granary::test

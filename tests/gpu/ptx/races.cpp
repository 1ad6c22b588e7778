// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/gpu/ptx/races.h"

#include <algorithm>

namespace granary::test::ptx {
namespace {

constexpr uint32_t kWord = 4;

}  // namespace

void see(const Seen& what, Seen& by) {
    by.resize(std::max(by.size(), what.size()));
    for (size_t w = 0; w < what.size(); ++w) by[w] = std::max(by[w], what[w]);
}

void Races::begin(size_t bytes, size_t warps) {
    // Steps go on counting, so that those of blocks before are seen by all.
    uint32_t last = base_;
    for (size_t w = 0; w < seen_.size(); ++w) last = std::max(last, seen_[w][w]);
    base_ = last + 1;
    const size_t words = (bytes + kWord - 1) / kWord;
    if (warps != warps_ || words > words_.size()) {
        warps_ = warps;
        words_.assign(std::max(words, words_.size()), {});
        reads_.assign(words_.size() * warps, 0);
    }
    seen_.assign(warps, Seen(warps, base_));
    for (size_t w = 0; w < warps; ++w) ++seen_[w][w];
}

bool Races::conflict(uint32_t warp, uint32_t at, uint32_t other, const char* did, const char* had) {
    what_ = "warp " + std::to_string(warp) + did + std::to_string(at) +
            " of shared memory, and warp " + std::to_string(other) + had +
            ": nothing puts the two in order";
    return false;
}

bool Races::of_lanes(uint32_t lane, uint32_t at, uint32_t other) {
    const auto name = [](uint32_t number) {
        return number < 32 ? "lane " + std::to_string(number) : std::string("the whole warp");
    };
    what_ = name(lane) + " reads what " + name(other) + " has written at " + std::to_string(at) +
            " of shared memory: no __syncwarp is between them";
    return false;
}

bool Races::read(uint32_t warp, uint32_t lane, uint32_t at, uint32_t bytes) {
    const Seen& seen = seen_[warp];
    const uint32_t own = seen[warp];
    const bool small = bytes < kWord;
    for (uint32_t word = at / kWord; word * kWord < at + bytes; ++word) {
        const Word& last = words_[word];
        if (last.warp != warp) {
            if (last.step > seen[last.warp] && !(small && last.small))
                return conflict(warp, at, last.warp, " reads what lies at ", " has written it");
        } else if (last.step == own && last.lane != lane && !(small && last.small)) {
            return of_lanes(lane, at, last.lane);
        }
        reads_[word * warps_ + warp] = 2 * own + small;
    }
    return true;
}

bool Races::write(uint32_t warp, uint32_t lane, uint32_t at, uint32_t bytes) {
    const Seen& seen = seen_[warp];
    const bool small = bytes < kWord;
    for (uint32_t word = at / kWord; word * kWord < at + bytes; ++word) {
        Word& last = words_[word];
        if (last.warp != warp && last.step > seen[last.warp] && !(small && last.small))
            return conflict(warp, at, last.warp, " writes at ", " has written there");
        const uint32_t* const reads = &reads_[word * warps_];
        for (uint32_t other = 0; other < warps_; ++other)
            if (other != warp && reads[other] / 2 > seen[other] && !(small && reads[other] & 1))
                return conflict(warp, at, other, " writes at ", " has read it");
        last = {seen[warp], static_cast<uint8_t>(warp), static_cast<uint8_t>(lane), small};
    }
    return true;
}

void Races::arrive(uint32_t warp, Seen& barrier) {
    see(seen_[warp], barrier);
    step(warp);
}

// Nobody knows more of the warp's own steps than it does.
void Races::leave(uint32_t warp, const Seen& barrier) {
    see(barrier, seen_[warp]);
}

}  // namespace granary::test::ptx

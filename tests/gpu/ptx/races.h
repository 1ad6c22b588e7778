// SPDX-License-Identifier: GPL-3.0-or-later
// Finds accesses to a block's shared memory that nothing puts in order: by two warps with no
// barrier between them, or a lane's read of what another lane of its warp has written, with no
// __syncwarp between.
//
// Each warp counts its steps, from one barrier to the next, and knows up to which step it has seen
// each other warp (a vector clock, as in Flanagan and Freund, "FastTrack", PLDI 2009). Atomics are
// in order with each other and are not looked at.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace granary::test::ptx {

// Steps of all warps of a block that somebody has seen.
using Seen = std::vector<uint32_t>;
// Who has seen `by` has seen `what` too.
void see(const Seen& what, Seen& by);

class Races {
  public:
    // Of a block that begins; `bytes` of shared memory.
    void begin(size_t bytes, size_t warps);

    // An access of `bytes` bytes at an offset. False: something is wrong with it; see what().
    bool read(uint32_t warp, uint32_t lane, uint32_t at, uint32_t bytes);
    bool write(uint32_t warp, uint32_t lane, uint32_t at, uint32_t bytes);
    const std::string& what() const { return what_; }

    // The warp comes to a barrier where others shall see what it has done...
    void arrive(uint32_t warp, Seen& barrier);
    // ... and leaves one, having seen what those did that came there.
    void leave(uint32_t warp, const Seen& barrier);
    // The lanes of a warp wait for each other.
    void step(uint32_t warp) { ++seen_[warp][warp]; }
    // What a warp had seen when it began a copy that others wait for at a barrier.
    const Seen& seen(uint32_t warp) const { return seen_[warp]; }

  private:
    // Of four bytes. Accesses of less than that are not held against each other: they may be of
    // different bytes.
    struct Word {
        uint32_t step = 0;  // of the last write
        uint8_t warp = 0, lane = 0;
        bool small = false;
    };
    bool conflict(uint32_t warp, uint32_t at, uint32_t other, const char* did, const char* had);
    bool of_lanes(uint32_t lane, uint32_t at, uint32_t other);

    uint32_t base_ = 0;  // no step of this block is as early
    size_t warps_ = 0;
    std::vector<Word> words_;
    std::vector<uint32_t> reads_;  // [words, warps]: 2 * step, + 1 for less than four bytes
    std::vector<Seen> seen_;       // [warps][warps]
    std::string what_;
};

}  // namespace granary::test::ptx

// SPDX-License-Identifier: GPL-3.0-or-later
// How long the rest of a prompt takes, while it is read; what it took teaches the engine's pace.
#pragma once

#include "engine/memory/rates.h"
#include "engine/run/clock.h"
#include "engine/run/engine_impl.h"

namespace granary {

class Forecast {
  public:
    // All must outlive this.
    Forecast(const Core& core, Pace& pace, const std::vector<ScheduledChunks>& schedule,
             uint32_t from, uint32_t total);

    // `rows` tokens at `cell`, with the loan of `chunk`.
    void begin_chunk(uint32_t cell, uint32_t chunk, uint32_t rows);
    void end_chunk();
    // Seconds that are left when `part` of the running chunk is done: 0 to 1.
    double remaining(double part) const;

  private:
    Pace& pace_;
    const std::vector<ScheduledChunks>& schedule_;
    const uint32_t total_;
    const Clock::time_point start_ = Clock::now();
    Clock::time_point chunk_start_ = start_;
    // By the engine's rates as they are; by those that its pace has corrected.
    Predictor planned_, corrected_;
    double planned_attention_ = 0, planned_rest_ = 0;  // of the running chunk
    double done_ = 0, chunk_ = 0, after_ = 0;          // corrected: before it, of it, behind it
};

}  // namespace granary

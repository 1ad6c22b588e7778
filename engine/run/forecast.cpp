// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/run/forecast.h"

#include <algorithm>

#include "engine/memory/schedule.h"

namespace granary {

Forecast::Forecast(const Core& core, Pace& pace, const std::vector<ScheduledChunks>& schedule,
                   uint32_t from, uint32_t total)
    : pace_(pace),
      schedule_(schedule),
      total_(total),
      planned_(core.model.facts, core.facts, core.plan),
      corrected_(core.model.facts, core.facts, core.plan, pace.corrected(planned_.rates())) {
    after_ = corrected_.prompt(rest_of(schedule, from), total).seconds;
}

void Forecast::begin_chunk(uint32_t cell, uint32_t chunk, uint32_t rows) {
    planned_attention_ = planned_.attention(cell, rows);
    planned_rest_ = planned_.chunk(chunk, cell, rows) - planned_attention_;
    chunk_ = corrected_.chunk(chunk, cell, rows);
    after_ = cell + rows < total_
                 ? corrected_.prompt(rest_of(schedule_, cell + rows), total_).seconds
                 : 0;
    chunk_start_ = Clock::now();
}

void Forecast::end_chunk() {
    const double seconds = seconds_since(chunk_start_);
    pace_.add_chunk(planned_rest_, planned_attention_, seconds);
    done_ += chunk_;
}

double Forecast::remaining(double part) const {
    const double predicted = chunk_ * (1 - part) + after_;
    if (pace_.knows_reading()) return predicted;
    // Nothing has been read on this machine yet: by the pace of the first layers.
    const double elapsed = seconds_since(start_);
    return predicted * elapsed / std::max(done_ + chunk_ * part, 1e-9);
}

}  // namespace granary

// SPDX-License-Identifier: GPL-3.0-or-later
// A recorded run: map frames and counters over time, to be shown again. The file is gzipped lines
// of JSON: first what the run was of, then a line a frame with what changed since the one before.
// Recordings leave out how warm experts are: it changes with each token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/error.h"
#include "granary/telemetry.h"

namespace granary {

struct TraceHeader {
    std::string model, device;
    std::vector<std::string> settings;  // "kv k8v4"
    uint64_t granule_bytes = 0;
    uint32_t granules = 0;
    uint32_t experts_per_layer = 0;
};

// Counters at a frame.
struct TraceCounts {
    uint64_t prompt_done = 0, prompt_total = 0, answered = 0, bytes_copied = 0;
    uint64_t driver_allocations = 0;
};

// Keeps what changed from frame to frame; at most kMostBytes of it.
class TraceWriter {
  public:
    static constexpr size_t kMostBytes = size_t{64} << 20;

    explicit TraceWriter(TraceHeader header);
    // Errors: `refused` when the recording has grown too long; it ends there.
    Result<void> add(const MapFrame& frame, const TraceCounts& counts);
    size_t frames() const { return frames_; }
    // The file's bytes, gzipped.
    std::string bytes() const;

  private:
    TraceHeader header_;
    std::string lines_;
    MapFrame last_;
    size_t frames_ = 0;
};

// Gives the frames again, one after the other.
class TraceReader {
  public:
    // Errors: `invalid_file`, with the line and what is wrong with it.
    static Result<TraceReader> open(std::string_view bytes);
    const TraceHeader& header() const { return header_; }
    size_t frames() const { return lines_.size(); }
    // The next frame, whole; false at the end.
    Result<bool> next(MapFrame& frame, TraceCounts& counts);

  private:
    bool lies_in_range(uint32_t id) const;

    TraceHeader header_;
    std::vector<std::string> lines_;
    size_t at_ = 0;
    MapFrame frame_;
};

}  // namespace granary

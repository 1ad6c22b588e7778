// SPDX-License-Identifier: GPL-3.0-or-later
// The last minute of the map in RAM: key frames, and between them only what changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "granary/telemetry.h"

namespace granary::gui {

// One granule's new word and place.
struct MapDelta {
    uint64_t word;
    uint32_t granule;
    uint32_t place;
    uint16_t range;
};

struct MapSegment {
    struct Step {
        double seconds = 0;
        uint64_t sequence = 0;
        std::vector<MapDelta> deltas;
    };
    MapFrame key;
    std::vector<Step> steps;
    size_t bytes = 0;
    double lastSeconds() const { return steps.empty() ? key.seconds : steps.back().seconds; }
};

// A span of the engine's seconds.
struct MapSpan {
    double from = 0, to = 0;
    bool valid() const { return to > from; }
};

class MapHistory {
  public:
    static constexpr double kSeconds = 60;
    static constexpr double kKeyEvery = 5;
    static constexpr size_t kDefaultLimit = size_t{96} << 20;

    explicit MapHistory(size_t limitBytes = kDefaultLimit) : m_limit(limitBytes) {}

    void append(const MapFrame& frame);
    void clear();

    bool empty() const { return m_segments.empty(); }
    size_t bytes() const { return m_bytes; }
    size_t frames() const;
    MapSpan span() const;
    // The last stretch in which a prompt held a loan, with a moment before and after; invalid if
    // none was seen.
    MapSpan lastPrompt() const;

    // Shared, so that a replay keeps what it plays while the history goes on and forgets.
    const std::deque<std::shared_ptr<MapSegment>>& segments() const { return m_segments; }

  private:
    void forget();

    size_t m_limit;
    size_t m_bytes = 0;
    std::deque<std::shared_ptr<MapSegment>> m_segments;
    MapFrame m_last;
    MapSpan m_loan;  // of the last or running prompt
    bool m_loanOpen = false;
};

// Plays a span of a history at a tenth of the speed.
class MapReplay {
  public:
    static constexpr double kSpeed = 0.1;

    // False if the history holds nothing of that span.
    bool start(const MapHistory& history, MapSpan span);
    void stop();
    bool running() const { return m_running; }

    // Lets `wallSeconds` pass; true if another frame shows.
    bool advance(double wallSeconds);
    bool finished() const { return m_position >= m_span.to; }

    const MapFrame& frame() const { return m_frame; }
    double position() const { return m_position; }  // recorded seconds
    MapSpan span() const { return m_span; }

  private:
    bool showUpTo(double seconds);

    std::deque<std::shared_ptr<MapSegment>> m_segments;
    MapFrame m_frame;
    MapSpan m_span;
    double m_position = 0;
    size_t m_segment = 0, m_step = 0;  // the next step to show
    bool m_running = false;
};

}  // namespace granary::gui

// SPDX-License-Identifier: GPL-3.0-or-later
// A logarithmic scale of counts with stops at powers of two, and ends for "auto" and "never".
#pragma once

#include <QCoreApplication>
#include <QString>
#include <cstdint>
#include <optional>
#include <vector>

#include "granary/settings.h"

namespace granary::gui {

class CountScale {
    Q_DECLARE_TR_FUNCTIONS(granary::gui::CountScale)

  public:
    static constexpr int kPerStop = 64;  // slider positions from a stop to the next

    // Stops at the powers of two in [least, most], at both ends, and at `extra` (0: none).
    CountScale(uint32_t least, uint32_t most, bool hasAuto, bool hasNever, uint32_t extra = 0);

    // 512 to 1,048,576 tokens, or to the trained length where that is longer.
    static CountScale longestContext(uint32_t trained);
    static CountScale readingStep();       // auto, 64 to 16,384
    static CountScale streamAllExperts();  // auto, 1 to 16,384, never

    uint32_t least() const { return m_stops.front(); }
    uint32_t most() const { return m_stops.back(); }
    bool hasAuto() const { return m_auto; }
    bool hasNever() const { return m_never; }

    int maximum() const;  // of positions, which begin at 0
    int stops() const { return maximum() / kPerStop + 1; }
    int position(const AutoCount& value) const;
    AutoCount value(int position) const;                           // any position; exact at stops
    int nearestStop(int position) const;                           // a position
    AutoCount neighbour(const AutoCount& value, int steps) const;  // that many stops away
    bool contains(const AutoCount& value) const;

    static QString text(const AutoCount& value);
    // What a person types: digits with or without separators, "32k", "auto", "never".
    std::optional<AutoCount> parse(const QString& text) const;

  private:
    std::vector<uint32_t> m_stops;
    bool m_auto, m_never;
};

}  // namespace granary::gui

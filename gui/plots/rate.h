// SPDX-License-Identifier: GPL-3.0-or-later
// The rate of a counter over its last moments.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

namespace granary::gui {

class Rate {
  public:
    // Counts per second over about this long: shorter is jumpy, longer is late.
    static constexpr double kWindow = 0.5;

    void add(double seconds, uint64_t count) {
        // A counter that goes back belongs to another engine.
        if (!m_samples.empty() &&
            (count < m_samples.back().second || seconds <= m_samples.back().first))
            m_samples.clear();
        m_samples.emplace_back(seconds, count);
        while (m_samples.size() > 2 && m_samples[1].first <= seconds - kWindow)
            m_samples.pop_front();
    }
    void clear() { m_samples.clear(); }
    double rate() const {
        if (m_samples.size() < 2) return 0;
        const auto& [first, from] = m_samples.front();
        const auto& [last, to] = m_samples.back();
        return static_cast<double>(to - from) / (last - first);
    }

  private:
    std::deque<std::pair<double, uint64_t>> m_samples;
};

}  // namespace granary::gui

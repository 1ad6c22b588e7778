// SPDX-License-Identifier: GPL-3.0-or-later
// Measures how long the window's thread is away: a timer of 4 ms, and the gaps between its beats.
#pragma once

#include <QElapsedTimer>
#include <QObject>
#include <QTimer>
#include <vector>

namespace granary::gui {

class Heartbeat : public QObject {
    Q_OBJECT

  public:
    explicit Heartbeat(QObject* parent = nullptr);

    void start();  // forgets what was measured
    void pause();  // for work of the script itself, which no person would wait for
    void resume();

    double p999Ms() const;
    double maxMs() const;

    static constexpr int kBeatMs = 4;

  private:
    void beat();

    static constexpr size_t kMost = 1 << 20;  // over an hour of beats

    QTimer m_timer;
    QElapsedTimer m_clock;
    bool m_fresh = true;  // the next beat has no predecessor
    std::vector<float> m_gaps;
};

// Milliseconds since this process was started, by the system's clock; -1: not known.
double msSinceProcessStart();

}  // namespace granary::gui

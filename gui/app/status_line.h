// SPDX-License-Identifier: GPL-3.0-or-later
// The status bar: context, speeds, hit rate, new driver memory, memory of the window itself.
#pragma once

#include <QElapsedTimer>
#include <QStatusBar>
#include <QTimer>

#include "gui/engine/engine_types.h"

class QLabel;

namespace granary::gui {

class StatusLine : public QStatusBar {
    Q_OBJECT

  public:
    explicit StatusLine(QWidget* parent = nullptr);

    // The counters must live until clearEngine().
    void setEngine(const Counters* counters, uint32_t contextMax);
    void clearEngine();
    void setContextMax(uint32_t tokens);
    void setMemory(const MemoryFigures& figures);
    void setState(State state);
    void setReport(const Report& report);  // speeds of what has just ended

  protected:
    void resizeEvent(QResizeEvent* event) override;

  private:
    void refresh();
    void makeRoom();
    void showSpeeds(double reading, double answering);

    static constexpr int kRefreshMs = 250;

    const Counters* m_counters = nullptr;
    uint32_t m_contextMax = 0;
    State m_state = State::no_model;
    QTimer m_timer;
    QElapsedTimer m_clock;
    uint64_t m_read = 0, m_answered = 0;  // when the running phase began
    qint64 m_since = 0;
    double m_readingRate = 0, m_answeringRate = 0;
    QLabel* m_context;
    QLabel* m_reading;
    QLabel* m_answering;
    QLabel* m_hits;
    QLabel* m_driver;
    QLabel* m_window;
};

}  // namespace granary::gui

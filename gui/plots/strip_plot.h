// SPDX-License-Identifier: GPL-3.0-or-later
// Reading and answering speed over the last two minutes, in tokens per second.
#pragma once

#include <QElapsedTimer>
#include <QWidget>

#include "granary/telemetry.h"
#include "gui/plots/rate.h"

class QCustomPlot;
class QCPGraph;
class QLabel;
class QTimer;

namespace granary::gui {

class StripPlot : public QWidget {
    Q_OBJECT
  public:
    static constexpr double kSeconds = 120;
    static constexpr int kSampleMs = 100;

    explicit StripPlot(QWidget* parent = nullptr);

    // Reads the counters ten times a second while visible; they must live until clearEngine().
    void setEngine(Telemetry* telemetry);
    void clearEngine();

    // One sample of both counters at `seconds` (any rising clock); what the timer calls.
    void addSample(double seconds, uint64_t tokensRead, uint64_t tokensAnswered);

    double readingRate() const { return m_reading.rate(); }
    double answeringRate() const { return m_answering.rate(); }
    int points() const;
    QCustomPlot* plot() const { return m_plot; }

    QSize sizeHint() const override { return {600, 140}; }
    QSize minimumSizeHint() const override { return {240, 90}; }

  protected:
    void showEvent(QShowEvent* event) override;
    void hideEvent(QHideEvent* event) override;
    void changeEvent(QEvent* event) override;

  private:
    void sample();
    void colour();
    void showLegend();

    Telemetry* m_telemetry = nullptr;
    QCustomPlot* m_plot;
    QCPGraph* m_readingGraph;
    QCPGraph* m_answeringGraph;
    QLabel* m_readingLabel;
    QLabel* m_answeringLabel;
    QTimer* m_timer;
    QElapsedTimer m_clock;
    Rate m_reading, m_answering;
};

}  // namespace granary::gui

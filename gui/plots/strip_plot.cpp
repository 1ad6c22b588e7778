// SPDX-License-Identifier: GPL-3.0-or-later
// clang-format off: the first header must be this one
#include "gui/plots/custom_plot.h"
// clang-format on
#include "gui/plots/strip_plot.h"

#include <QEvent>
#include <QHBoxLayout>
#include <QLabel>
#include <QLocale>
#include <QTimer>
#include <QVBoxLayout>
#include <algorithm>

#include "gui/theme/metrics.h"
#include "gui/theme/theme.h"

namespace granary::gui {

namespace {

// Seconds before now, for the axis: "-60 s".
class BeforeNowTicker : public QCPAxisTicker {
  public:
    void setNow(double seconds) { m_now = seconds; }

  protected:
    double getTickStep(const QCPRange&) override { return 30; }
    int getSubTickCount(double) override { return 2; }
    QString getTickLabel(double tick, const QLocale& locale, QChar, int) override {
        const int before = qRound(tick - m_now);
        return before == 0 ? StripPlot::tr("now")
                           : StripPlot::tr("%1 s").arg(locale.toString(before));
    }

  private:
    double m_now = 0;
};

double largest(const QCPGraph& graph) {
    double most = 0;
    for (const QCPGraphData& point : *graph.data()) most = std::max(most, point.value);
    return most;
}

}  // namespace

StripPlot::StripPlot(QWidget* parent)
    : QWidget(parent),
      m_plot(new QCustomPlot(this)),
      m_readingLabel(new QLabel(this)),
      m_answeringLabel(new QLabel(this)),
      m_timer(new QTimer(this)) {
    setObjectName(QStringLiteral("stripPlot"));
    setAccessibleName(tr("Reading and answering speed"));
    m_plot->setObjectName(QStringLiteral("stripPlotCanvas"));
    m_plot->setAccessibleName(tr("Tokens per second over the last two minutes"));
    m_plot->setFocusPolicy(Qt::NoFocus);
    m_plot->setNoAntialiasingOnDrag(true);
    m_plot->setMinimumHeight(60);
    m_plot->axisRect()->setAutoMargins(QCP::msAll);
    m_plot->axisRect()->setMinimumMargins(QMargins(4, 4, 4, 4));
    m_plot->yAxis2->setVisible(true);
    m_plot->xAxis->setRange(-kSeconds, 0);
    m_plot->xAxis->setTicker(QSharedPointer<BeforeNowTicker>::create());
    m_plot->xAxis->ticker()->setTickOrigin(0);
    // The two speeds differ by a factor of ten and more: each has its own axis, named by the
    // colour of its line and by the label on its side.
    m_readingGraph = m_plot->addGraph(m_plot->xAxis, m_plot->yAxis);
    m_answeringGraph = m_plot->addGraph(m_plot->xAxis, m_plot->yAxis2);
    for (QCPAxis* axis : {m_plot->yAxis, m_plot->yAxis2}) {
        axis->setRange(0, 10);
        axis->ticker()->setTickCount(4);
        axis->setNumberFormat(QStringLiteral("gb"));
        axis->setNumberPrecision(6);
        axis->setSubTicks(false);
    }

    m_readingLabel->setFont(metrics::small(font()));
    m_answeringLabel->setFont(metrics::small(font()));
    auto* row = new QHBoxLayout;
    row->setContentsMargins(metrics::kGrid, 0, metrics::kGrid, 0);
    row->addWidget(m_readingLabel);
    row->addStretch();
    row->addWidget(m_answeringLabel);
    auto* column = new QVBoxLayout(this);
    column->setContentsMargins(metrics::kHalfGrid, metrics::kHalfGrid, metrics::kHalfGrid, 0);
    column->setSpacing(0);
    column->addLayout(row);
    column->addWidget(m_plot, 1);

    m_timer->setInterval(kSampleMs);
    connect(m_timer, &QTimer::timeout, this, &StripPlot::sample);
    m_clock.start();
    colour();
    showLegend();
}

void StripPlot::setEngine(Telemetry* telemetry) {
    clearEngine();
    m_telemetry = telemetry;
    if (isVisible() && m_telemetry != nullptr) m_timer->start();
}

void StripPlot::clearEngine() {
    m_telemetry = nullptr;
    m_timer->stop();
    m_reading.clear();
    m_answering.clear();
    showLegend();
}

void StripPlot::showEvent(QShowEvent* event) {
    QWidget::showEvent(event);
    if (m_telemetry != nullptr) m_timer->start();
}

void StripPlot::hideEvent(QHideEvent* event) {
    QWidget::hideEvent(event);
    m_timer->stop();
}

void StripPlot::sample() {
    if (m_telemetry == nullptr) return;
    const Counters& counters = m_telemetry->counters;
    addSample(m_clock.nsecsElapsed() / 1e9, counters.tokens_read.load(std::memory_order_relaxed),
              counters.tokens_answered.load(std::memory_order_relaxed));
}

void StripPlot::addSample(double seconds, uint64_t tokensRead, uint64_t tokensAnswered) {
    m_reading.add(seconds, tokensRead);
    m_answering.add(seconds, tokensAnswered);
    m_readingGraph->addData(seconds, m_reading.rate());
    m_answeringGraph->addData(seconds, m_answering.rate());
    for (QCPGraph* graph : {m_readingGraph, m_answeringGraph}) {
        graph->data()->removeBefore(seconds - kSeconds);
        // The axis only grows while a peak is in sight, so that the line does not dance.
        graph->valueAxis()->setRange(0, std::max(largest(*graph) * 1.15, 10.0));
    }
    m_plot->xAxis->setRange(seconds - kSeconds, seconds);
    m_plot->xAxis->ticker()->setTickOrigin(seconds);
    static_cast<BeforeNowTicker*>(m_plot->xAxis->ticker().data())->setNow(seconds);
    m_plot->replot(QCustomPlot::rpQueuedReplot);
    showLegend();
}

int StripPlot::points() const {
    return m_readingGraph->dataCount();
}

void StripPlot::showLegend() {
    const QLocale locale;
    const auto text = [&locale](const QString& what, double rate) {
        return rate > 0 ? tr("%1 %2 tok/s").arg(what, locale.toString(qRound(rate)))
                        : tr("%1 \u2013 tok/s").arg(what);
    };
    const QString reading = text(tr("reading"), m_reading.rate());
    const QString answering = text(tr("answering"), m_answering.rate());
    if (reading == m_readingLabel->text() && answering == m_answeringLabel->text()) return;
    m_readingLabel->setText(reading);
    m_answeringLabel->setText(answering);
    setAccessibleDescription(reading + QStringLiteral("; ") + answering);
}

void StripPlot::colour() {
    const Tones& tones = Theme::tones(palette());
    const bool dark = Theme::isDark(palette());
    const QColor reading = tones.accent;
    const QColor answering = dark ? QColor(0xd79bf0) : QColor(0x7a1f9a);
    m_plot->setBackground(QBrush(palette().color(QPalette::Window)));
    m_plot->axisRect()->setBackground(QBrush(palette().color(QPalette::Base)));
    for (QCPAxis* axis : {m_plot->xAxis, m_plot->yAxis, m_plot->xAxis2, m_plot->yAxis2}) {
        axis->setBasePen(QPen(tones.border, 1));
        axis->setTickPen(QPen(tones.border, 1));
        axis->setSubTickPen(QPen(tones.border, 1));
        axis->setTickLabelFont(metrics::scaled(font(), 0.8));
        axis->setTickLabelColor(tones.muted);
        axis->grid()->setPen(QPen(tones.border, 1));
        axis->grid()->setZeroLinePen(Qt::NoPen);
    }
    m_plot->yAxis->setTickLabelColor(reading);
    m_plot->yAxis2->setTickLabelColor(answering);
    m_plot->yAxis2->grid()->setVisible(false);
    m_plot->xAxis->grid()->setVisible(false);
    // Cosmetic 1 px pens without antialiasing of fills: the cheapest line there is.
    m_readingGraph->setPen(QPen(reading, 1.2));
    m_answeringGraph->setPen(QPen(answering, 1.2));
    const auto paint = [](QLabel* label, const QColor& color) {
        QPalette p = label->palette();
        p.setColor(QPalette::WindowText, color);
        label->setPalette(p);
    };
    paint(m_readingLabel, reading);
    paint(m_answeringLabel, answering);
    m_plot->replot(QCustomPlot::rpQueuedReplot);
}

void StripPlot::changeEvent(QEvent* event) {
    if (event->type() == QEvent::PaletteChange || event->type() == QEvent::FontChange) colour();
    QWidget::changeEvent(event);
}

}  // namespace granary::gui

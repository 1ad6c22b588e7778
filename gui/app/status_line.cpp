// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/status_line.h"

#include <QLabel>
#include <QLocale>

#include "gui/widgets/panel.h"

namespace granary::gui {

StatusLine::StatusLine(QWidget* parent) : QStatusBar(parent) {
    setObjectName(QStringLiteral("statusLine"));
    setAccessibleName(tr("Status"));
    setSizeGripEnabled(false);
    const auto label = [this](const char* name, const QString& tip) {
        auto* label = new QuietLabel;
        label->setObjectName(QLatin1String(name));
        label->setToolTip(tip);
        label->setContentsMargins(6, 2, 6, 2);
        addPermanentWidget(label);
        return label;
    };
    m_context = label("statusContext", tr("Tokens of this conversation in memory, and the most"));
    m_reading = label("statusReading", tr("Prompt tokens read per second"));
    m_answering = label("statusAnswering", tr("Answer tokens per second"));
    m_hits = label("statusHits", tr("Experts that were in the cache when they were needed"));
    m_driver = label("statusDriver", tr("Allocations asked of the driver since the model loaded"));
    m_window = label("statusWindow", tr("This window draws in software and holds no video memory"));
    m_window->setText(tr("Window VRAM 0"));
    m_timer.setInterval(kRefreshMs);
    connect(&m_timer, &QTimer::timeout, this, &StatusLine::refresh);
    m_clock.start();
    clearEngine();
}

void StatusLine::setEngine(const Counters* counters, uint32_t contextMax) {
    m_counters = counters;
    m_contextMax = contextMax;
    m_readingRate = m_answeringRate = 0;
    for (QLabel* label : {m_context, m_reading, m_answering, m_driver}) label->show();
    refresh();
}

void StatusLine::clearEngine() {
    m_timer.stop();
    m_counters = nullptr;
    for (QLabel* label : {m_context, m_reading, m_answering, m_hits, m_driver}) label->hide();
}

void StatusLine::setContextMax(uint32_t tokens) {
    m_contextMax = tokens;
    refresh();
}

void StatusLine::setMemory(const MemoryFigures& figures) {
    m_driver->setText(figures.driverAllocationsAfterLoad == 0
                          ? tr("New driver memory none")
                          : tr("New driver memory %n time(s)", nullptr,
                               static_cast<int>(figures.driverAllocationsAfterLoad)));
    refresh();
}

void StatusLine::setState(State state) {
    const bool busy = state == State::reading || state == State::answering;
    if (busy && m_counters && state != m_state) {
        m_read = m_counters->tokens_read.load(std::memory_order_relaxed);
        m_answered = m_counters->tokens_answered.load(std::memory_order_relaxed);
        m_since = m_clock.elapsed();
    }
    m_state = state;
    if (busy)
        m_timer.start();
    else
        m_timer.stop();
    refresh();
}

void StatusLine::setReport(const Report& report) {
    if (report.read_tokens > 0 && report.read_seconds > 0) {
        m_readingRate = report.read_tokens / report.read_seconds;
    }
    if (report.answer_tokens > 0 && report.answer_seconds > 0) {
        m_answeringRate = report.answer_tokens / report.answer_seconds;
    }
    refresh();
}

void StatusLine::refresh() {
    if (!m_counters) return;
    const auto get = [](const std::atomic<uint64_t>& counter) {
        return counter.load(std::memory_order_relaxed);
    };
    const QLocale locale;
    const double seconds = static_cast<double>(m_clock.elapsed() - m_since) / 1000.0;
    if (seconds > 0.2 && m_state == State::reading) {
        m_readingRate = static_cast<double>(get(m_counters->tokens_read) - m_read) / seconds;
    }
    if (seconds > 0.2 && m_state == State::answering) {
        m_answeringRate =
            static_cast<double>(get(m_counters->tokens_answered) - m_answered) / seconds;
    }
    m_context->setText(
        tr("Context %1 of %2")
            .arg(locale.toString(get(m_counters->context_used)), locale.toString(m_contextMax)));
    showSpeeds(m_readingRate, m_answeringRate);
    const uint64_t hits = get(m_counters->expert_hits);
    const uint64_t all = hits + get(m_counters->expert_misses);
    m_hits->setText(
        all == 0 ? QString()
                 : tr("Hits %1 %")
                       .arg(locale.toString(
                           100.0 * static_cast<double>(hits) / static_cast<double>(all), 'f', 1)));
    makeRoom();
}

// Where there is no room for all, the least urgent go first, whole.
void StatusLine::makeRoom() {
    int width = 16;
    for (QLabel* label : {m_context, m_reading, m_answering, m_driver, m_hits, m_window}) {
        if (label->text().isEmpty() || (label != m_window && !m_counters)) continue;
        width += label->sizeHint().width() + 6;
        label->setVisible(width <= this->width());
    }
}

void StatusLine::resizeEvent(QResizeEvent* event) {
    QStatusBar::resizeEvent(event);
    makeRoom();
}

void StatusLine::showSpeeds(double reading, double answering) {
    const auto speed = [](double rate) {
        const QLocale locale;
        if (rate <= 0) return QString(QChar(0x2013));
        return locale.toString(rate, 'f', rate < 100 ? 1 : 0);
    };
    m_reading->setText(tr("Reading %1 tok/s").arg(speed(reading)));
    m_answering->setText(tr("Answering %1 tok/s").arg(speed(answering)));
}

}  // namespace granary::gui

// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/heartbeat.h"

#include <QFile>
#include <algorithm>
#include <ctime>
#ifdef Q_OS_LINUX
#include <unistd.h>
#endif

namespace granary::gui {

Heartbeat::Heartbeat(QObject* parent) : QObject(parent) {
    m_timer.setInterval(kBeatMs);
    m_timer.setTimerType(Qt::PreciseTimer);
    connect(&m_timer, &QTimer::timeout, this, &Heartbeat::beat);
}

void Heartbeat::start() {
    m_gaps.clear();
    m_gaps.reserve(1 << 16);
    resume();
}

void Heartbeat::pause() {
    m_timer.stop();
}

void Heartbeat::resume() {
    m_fresh = true;
    m_timer.start();
}

void Heartbeat::beat() {
    const qint64 ns = m_clock.isValid() ? m_clock.nsecsElapsed() : 0;
    m_clock.start();
    if (std::exchange(m_fresh, false) || m_gaps.size() >= kMost) return;
    m_gaps.push_back(static_cast<float>(static_cast<double>(ns) / 1e6));
}

double Heartbeat::p999Ms() const {
    if (m_gaps.empty()) return 0;
    std::vector<float> gaps = m_gaps;
    const size_t at = (gaps.size() - 1) * 999 / 1000;
    std::nth_element(gaps.begin(), gaps.begin() + static_cast<std::ptrdiff_t>(at), gaps.end());
    return gaps[at];
}

double Heartbeat::maxMs() const {
    return m_gaps.empty() ? 0 : *std::max_element(m_gaps.begin(), m_gaps.end());
}

double msSinceProcessStart() {
#ifdef Q_OS_LINUX
    // Field 22 of stat: start in clock ticks since boot, counted behind the name in brackets.
    QFile stat(QStringLiteral("/proc/self/stat"));
    if (!stat.open(QIODevice::ReadOnly)) return -1;
    const QByteArray text = stat.readAll();
    const QList<QByteArray> fields = text.mid(text.lastIndexOf(')') + 2).split(' ');
    timespec now{};
    if (fields.size() < 20 || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return -1;
    const double started = fields[19].toDouble() / static_cast<double>(sysconf(_SC_CLK_TCK));
    return (static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9 - started) *
           1000;
#else
    return -1;
#endif
}

}  // namespace granary::gui

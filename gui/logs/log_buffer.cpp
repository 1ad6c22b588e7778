// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/logs/log_buffer.h"

#include <spdlog/sinks/base_sink.h>
#include <chrono>

namespace granary::gui {

namespace {

class LogSink : public spdlog::sinks::base_sink<std::mutex> {
  public:
    explicit LogSink(std::shared_ptr<LogBuffer> buffer) : m_buffer(std::move(buffer)) {}

  protected:
    void sink_it_(const spdlog::details::log_msg& message) override {
        using std::chrono::duration_cast, std::chrono::milliseconds;
        m_buffer->add(duration_cast<milliseconds>(message.time.time_since_epoch()).count(),
                      message.level,
                      std::string_view(message.payload.data(), message.payload.size()));
    }
    void flush_() override {}

  private:
    std::shared_ptr<LogBuffer> m_buffer;
};

// One line of plain text whatever a file name or a model's string holds.
QString cleaned(const std::string& text) {
    QString line = QString::fromUtf8(text.data(), static_cast<qsizetype>(text.size()));
    for (QChar& c : line)
        if (c.category() == QChar::Other_Control || c.category() == QChar::Separator_Line ||
            c.category() == QChar::Separator_Paragraph)
            c = QLatin1Char(' ');
    return line;
}

}  // namespace

void LogBuffer::add(qint64 milliseconds, spdlog::level::level_enum level, std::string_view text) {
    const std::lock_guard lock(m_mutex);
    if (m_waiting.size() >= kWaiting) {
        ++m_dropped;
        return;
    }
    std::string kept(text.substr(0, kLineBytes));
    if (text.size() > kLineBytes)
        kept += " [" + std::to_string(text.size() - kLineBytes) + " bytes more]";
    m_waiting.push_back({milliseconds, level, std::move(kept)});
    // Under the lock, so that whoever sets another wake-up knows that the old one is not running.
    if (m_waiting.size() == 1 && m_wake) m_wake();
}

std::vector<LogLine> LogBuffer::take(size_t& dropped) {
    std::deque<Waiting> waiting;
    {
        const std::lock_guard lock(m_mutex);
        waiting.swap(m_waiting);
        dropped = std::exchange(m_dropped, 0);
    }
    std::vector<LogLine> lines;
    lines.reserve(waiting.size());
    for (const Waiting& line : waiting)
        lines.push_back({line.milliseconds, line.level, cleaned(line.text)});
    return lines;
}

void LogBuffer::setWake(std::function<void()> wake) {
    const std::lock_guard lock(m_mutex);
    m_wake = std::move(wake);
}

std::shared_ptr<spdlog::sinks::sink> makeLogSink(std::shared_ptr<LogBuffer> buffer) {
    return std::make_shared<LogSink>(std::move(buffer));
}

}  // namespace granary::gui

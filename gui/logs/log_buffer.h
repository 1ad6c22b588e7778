// SPDX-License-Identifier: GPL-3.0-or-later
// Log lines on their way from any thread to the window: bounded, and one wake-up for many lines.
#pragma once

#include <spdlog/common.h>
#include <QString>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace granary::gui {

struct LogLine {
    qint64 milliseconds = 0;  // since the epoch
    spdlog::level::level_enum level = spdlog::level::info;
    QString text;
};

// Shared by the sink, which outlives windows, and a model.
class LogBuffer {
  public:
    static constexpr size_t kWaiting = 4096;    // lines; beyond it the newest are dropped, counted
    static constexpr size_t kLineBytes = 4096;  // of one line; the rest is cut off, saying so

    // Any thread.
    void add(qint64 milliseconds, spdlog::level::level_enum level, std::string_view text);
    // Lines that wait, and how many were dropped since the last call.
    std::vector<LogLine> take(size_t& dropped);
    // Called, from any thread and under the lock, when the first line comes to wait: it may only
    // post something. Null: nobody listens.
    void setWake(std::function<void()> wake);

  private:
    struct Waiting {
        qint64 milliseconds;
        spdlog::level::level_enum level;
        std::string text;
    };
    std::mutex m_mutex;
    std::deque<Waiting> m_waiting;
    size_t m_dropped = 0;
    std::function<void()> m_wake;
};

// An spdlog sink that fills a buffer.
std::shared_ptr<spdlog::sinks::sink> makeLogSink(std::shared_ptr<LogBuffer> buffer);

}  // namespace granary::gui

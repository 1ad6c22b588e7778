// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include "granary/engine.h"
#include "granary/trace.h"

namespace granary::cli {

// Records what an engine shows of its memory while it works, four frames a second, on a thread of
// its own. Nobody else may take frames meanwhile.
class TraceRecorder {
  public:
    explicit TraceRecorder(Engine& engine);
    ~TraceRecorder() { stop(); }
    TraceRecorder(const TraceRecorder&) = delete;
    TraceRecorder& operator=(const TraceRecorder&) = delete;

    // Ends the recording and writes it. Errors: `io`; `refused` where it grew too long.
    Result<void> write(const std::string& path);

  private:
    void record();
    void stop();

    Telemetry& telemetry_;
    TraceHeader header_;
    std::optional<TraceWriter> writer_;  // from the first frame on
    std::optional<Error> failed_;
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

}  // namespace granary::cli

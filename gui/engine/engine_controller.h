// SPDX-License-Identifier: GPL-3.0-or-later
// The window's side of the engine: sends commands to the worker's thread and repeats its signals
// in the window's thread, with answer text gathered at a pace that a window can draw.
#pragma once

#include <QObject>
#include <QThread>
#include <QTimer>

#include "gui/engine/engine_types.h"
#include "gui/engine/text_buffer.h"

namespace granary::gui {

class EngineWorker;

class EngineController : public QObject {
    Q_OBJECT

  public:
    explicit EngineController(QObject* parent = nullptr);
    ~EngineController() override;  // shuts down
    // Stops what runs, waits for the thread, at most the time in which Stop answers, and tells all
    // that it had still to tell, the last text above all. Nothing can be asked of it afterwards.
    void shutDown();

    State state() const { return m_state; }
    bool busy() const { return m_state == State::reading || m_state == State::answering; }
    const std::optional<LoadedModel>& model() const { return m_model; }
    const MemoryFigures& memory() const { return m_memory; }

    EngineWorker* worker() const { return m_worker; }  // for tests: whose signals it repeats

    // Closes what is open first; a running answer is stopped.
    void open(const QString& path, const Settings& settings);
    void close();
    void ask(const Request& request);
    void stop();
    void apply(const Settings& settings);
    void refuse(const Error& error);
    void edit();

  Q_SIGNALS:
    void stateChanged(granary::State state);
    // Telemetry of the open model ends after this signal.
    void closing();
    void loadProgress(quint64 doneBytes, quint64 totalBytes);
    void opened(const granary::gui::LoadedModel& model);
    void openFailed(const granary::Error& error);
    void openCancelled();
    void readProgress(quint32 done, quint32 total, double etaSeconds);
    void read(const granary::Report& report);
    void text(const QString& more);
    void finished(const granary::Report& report);
    void refused(const granary::Error& error);
    void failed(const granary::Error& error, bool engineLost);
    // After a success model() is the new one.
    void applied(bool ok, const QString& message);
    void memoryChanged(const granary::gui::MemoryFigures& figures);

  private:
    void drainText();
    void leave();
    std::shared_ptr<StopSignal> renewStop();

    static constexpr int kDrainMs = 30;

    State m_state = State::no_model;
    std::optional<LoadedModel> m_model;
    MemoryFigures m_memory;
    TextBuffer m_text;
    std::shared_ptr<StopSignal> m_stop;  // of the command sent last
    QThread m_thread;
    EngineWorker* m_worker;  // lives in m_thread
    QTimer m_drain;
};

}  // namespace granary::gui

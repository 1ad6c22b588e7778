// SPDX-License-Identifier: GPL-3.0-or-later
// Owns the engine and the program's state, in a thread of its own. Commands arrive as queued
// calls and run one after another; what they do comes back as signals with values.
#pragma once

#include <QElapsedTimer>
#include <QObject>
#include <memory>

#include "gui/engine/engine_types.h"
#include "gui/engine/text_buffer.h"

namespace granary::gui {

class EngineWorker : public QObject {
    Q_OBJECT

  public:
    // `text` outlives the worker; the window's thread reads it.
    explicit EngineWorker(TextBuffer& text);
    ~EngineWorker() override;

    // Lowers the calling thread's priority to that of the engine's own threads.
    void begin();

    // Each command brings its own signal, so that a late stop never meets the next command.
    using Stop = std::shared_ptr<const StopSignal>;
    void open(const QString& path, const granary::Settings& settings, const Stop& stop);
    void close();
    void ask(const granary::Request& request, const Stop& stop);
    void apply(const granary::Settings& settings);
    // A prompt that the window itself can tell is not worth sending.
    void refuse(const granary::Error& error);
    // A person edits the draft or dismisses the bar.
    void edit();

  Q_SIGNALS:
    // What happened is told before the state that follows from it.
    void stateChanged(granary::State state);
    void loadProgress(quint64 doneBytes, quint64 totalBytes);
    void opened(const granary::gui::LoadedModel& model);
    void openFailed(const granary::Error& error);
    void openCancelled();
    // The prompt is read; the first text follows.
    void read(const granary::Report& report);
    void readProgress(quint32 done, quint32 total, double etaSeconds);
    void firstText();
    void finished(const granary::Report& report);
    void refused(const granary::Error& error);
    void failed(const granary::Error& error, bool engineLost);
    void applied(bool ok, const QString& message, const granary::gui::LoadedModel& model);
    void memory(const granary::gui::MemoryFigures& figures);

  private:
    bool move(StateEvent event);
    void publishMemory();
    LoadedModel describe() const;

    static constexpr int kNice = 5;  // the window's own thread stays ahead of the arithmetic

    TextBuffer& m_text;
    State m_state = State::no_model;
    std::unique_ptr<Engine> m_engine;
    ConversationId m_conversation = 0;
    QString m_path;
    double m_loadSeconds = 0;
    QElapsedTimer m_progressClock;
};

}  // namespace granary::gui

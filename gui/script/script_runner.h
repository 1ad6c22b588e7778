// SPDX-License-Identifier: GPL-3.0-or-later
// Runs a script against the window, step by step in the event loop.
#pragma once

#include <QElapsedTimer>
#include <QObject>
#include <QSet>
#include <QTimer>

#include "gui/script/script.h"
#include "gui/script/script_target.h"

namespace granary::gui {

class ScriptRunner : public QObject {
    Q_OBJECT

  public:
    ScriptRunner(Script script, QString out, ScriptTarget& target, QObject* parent = nullptr);
    void start();
    void stateChanged(State state);  // to be told of every state, however short

  Q_SIGNALS:
    // 0, or 1 with "FILE:LINE: what is wrong".
    void done(int exitCode, const QString& message);

  private:
    enum class Outcome { next, wait, failed };
    void tick();
    Outcome run(const ScriptStep& step);
    Outcome runWait(const ScriptStep& step);
    Outcome runKey(const ScriptStep& step);
    Outcome runType(const ScriptStep& step);
    Outcome failWith(const QString& what);
    // Until it is there: a moment of patience for what the last step set in motion.
    Outcome patience(const QString& what);

    static constexpr int kPatienceMs = 5000;

    Script m_script;
    QString m_out;
    ScriptTarget& m_target;
    QTimer m_timer;
    QElapsedTimer m_stepClock;
    qsizetype m_at = 0;
    bool m_began = false;  // the current step was tried before
    QSet<int> m_seen;      // states entered since the last step that did something
    QString m_failure;
};

}  // namespace granary::gui

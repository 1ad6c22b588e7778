// SPDX-License-Identifier: GPL-3.0-or-later
// Commands that drive the window, one a line; # begins a comment, words are quoted as in a shell.
#pragma once

#include <QString>
#include <QStringList>
#include <QVector>

#include "gpu/error.h"

namespace granary::gui {

struct ScriptStep {
    int line = 0;
    QString command;
    QStringList arguments;
};

class Script {
  public:
    // Errors name file and line: an unknown command, a wrong number of words, an open quote.
    static Result<Script> load(const QString& path);
    static Result<Script> parse(const QString& text, const QString& name);
    static QString help();

    const QString& name() const { return m_name; }
    const QVector<ScriptStep>& steps() const { return m_steps; }

  private:
    QString m_name;
    QVector<ScriptStep> m_steps;
};

}  // namespace granary::gui

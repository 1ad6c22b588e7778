// SPDX-License-Identifier: GPL-3.0-or-later
// What a script needs of the window besides its widgets and actions.
#pragma once

#include <QJsonObject>
#include <QString>
#include <QStringList>

#include "gpu/error.h"
#include "granary/state.h"

class QWidget;

namespace granary::gui {

class ScriptTarget {
  public:
    virtual ~ScriptTarget() = default;
    virtual QWidget* scriptWindow() = 0;
    virtual void scriptOpen(const QString& path) = 0;
    virtual void scriptDrop(const QStringList& paths) = 0;
    virtual Result<void> scriptSet(const QString& name, const QString& value) = 0;
    virtual State scriptState() const = 0;
    // Something was asked for whose effect on the state is still to come.
    virtual bool scriptPending() const = 0;
    virtual QJsonObject scriptReport() const = 0;
    // The script's own work (pictures, files) is no part of the window's measured pauses.
    virtual void scriptMeasure(bool on) = 0;
};

}  // namespace granary::gui

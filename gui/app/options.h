// SPDX-License-Identifier: GPL-3.0-or-later
// The command line of the window.
#pragma once

#include <QSize>
#include <QString>
#include <QStringList>

#include "gpu/error.h"
#include "granary/settings.h"

namespace granary::gui {

struct Options {
    QString model, document;
    bool firstQuestion = false;
    QString script, out;  // --script FILE --out DIR
    QString profile;      // --profile DIR
    QString theme;        // --theme; empty: as kept
    QSize size;           // --size; invalid: as kept or by the screen
    QStringList given;    // names of settings given, in order
    Settings settings;    // with those applied
    QString helpText;     // --help or --version: print this and end
};

// Needs no display and no application object.
Result<Options> parseOptions(const QStringList& arguments);

}  // namespace granary::gui

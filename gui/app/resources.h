// SPDX-License-Identifier: GPL-3.0-or-later
// What ships with the program: the starter model and the welcome document with its questions.
#pragma once

#include <QString>
#include <QVector>
#include <optional>

namespace granary::gui {

// The path of a shipped file: beside the installed program, else in the source tree it was built
// from. Empty: neither is there.
QString resourcePath(const QString& relative);

QString starterModelPath();
bool isStarterModel(const QString& path);

struct SampleQuestion {
    QString question;
    QString fact;  // a right answer contains it
};

struct Welcome {
    QString documentPath;
    QVector<SampleQuestion> questions;
};

// Nothing where the folder is missing or its list of questions cannot be read.
std::optional<Welcome> loadWelcome();

}  // namespace granary::gui

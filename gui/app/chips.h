// SPDX-License-Identifier: GPL-3.0-or-later
// Words and marks of the tool bar's chips.
#pragma once

#include <QColor>
#include <QPalette>
#include <QString>

#include "gui/engine/engine_types.h"

namespace granary::gui {

// "Emulated card, 40 MiB of RAM", "CPU, full speed"
QString deviceText(const LoadedModel& model);
QString stateText(State state);
QColor stateColor(State state, const QPalette& palette);

}  // namespace granary::gui

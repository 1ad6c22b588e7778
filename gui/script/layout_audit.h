// SPDX-License-Identifier: GPL-3.0-or-later
// Walks the widgets of a window and names what a person would stumble over: text that is cut,
// widgets outside their parents, controls without a name, a focus that cannot get on, text of too
// little contrast.
#pragma once

#include <QStringList>

class QWidget;

namespace granary::gui {

// One line per fault; empty: none. Moves the keyboard focus and puts it back.
QStringList auditLayout(QWidget* window);

}  // namespace granary::gui

// SPDX-License-Identifier: GPL-3.0-or-later
// The theme's colours by what widgets use them for; the palette tells which theme it is.
#pragma once

#include <QColor>
#include <QPalette>

namespace granary::gui {

QColor hairline(const QPalette& palette);   // borders and separators
QColor mutedText(const QPalette& palette);  // secondary text
QColor raised(const QPalette& palette);     // fill of chips, code blocks and bubbles
QColor hovered(const QPalette& palette);    // the same under the pointer
QColor accent(const QPalette& palette);

}  // namespace granary::gui

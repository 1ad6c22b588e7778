// SPDX-License-Identifier: GPL-3.0-or-later
// Colours that widgets derive from the palette, so that light, dark and high contrast follow by
// themselves.
#pragma once

#include <QColor>
#include <QPalette>

namespace granary::gui {

// The colour at `share` of the way from `from` to `to`, 0 to 1.
QColor mix(const QColor& from, const QColor& to, qreal share);

QColor hairline(const QPalette& palette);   // borders and separators
QColor mutedText(const QPalette& palette);  // secondary text, at least 4.5 : 1 on Window and Base
QColor raised(const QPalette& palette);     // fill of chips, code blocks and bubbles
QColor hovered(const QPalette& palette);    // the same under the pointer
QColor accent(const QPalette& palette);
bool isDark(const QPalette& palette);

// Contrast ratio of WCAG 2.1, 1 to 21; both colours opaque.
qreal contrast(const QColor& a, const QColor& b);

}  // namespace granary::gui

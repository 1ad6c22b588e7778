// SPDX-License-Identifier: GPL-3.0-or-later
// Distances and fonts that every pane shares. Logical pixels; the grid is 8.
#pragma once

#include <QFont>
#include <QFontDatabase>

namespace granary::gui::metrics {

inline constexpr int kGrid = 8;
inline constexpr int kHalfGrid = 4;
inline constexpr int kPaneMargin = 12;  // between a pane's edge and its content
inline constexpr int kRadius = 5;       // of buttons, fields, bars and cards
inline constexpr int kToolBar = 40;     // height
inline constexpr int kControl = 28;     // height of a button, field or chip

inline QFont scaled(QFont font, double factor) {
    if (font.pointSizeF() > 0)
        font.setPointSizeF(font.pointSizeF() * factor);
    else
        font.setPixelSize(qRound(font.pixelSize() * factor));
    return font;
}

inline QFont small(const QFont& font) {
    return scaled(font, 0.9);
}

inline QFont strong(QFont font) {
    font.setWeight(QFont::DemiBold);
    return font;
}

inline QFont monospace(const QFont& like) {
    QFont font = QFontDatabase::systemFont(QFontDatabase::FixedFont);
    if (like.pointSizeF() > 0) font.setPointSizeF(like.pointSizeF());
    return font;
}

}  // namespace granary::gui::metrics

// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/widgets/colors.h"

#include <algorithm>
#include <cmath>

namespace granary::gui {

namespace {

// Relative luminance of WCAG 2.1.
qreal luminance(const QColor& color) {
    const auto linear = [](qreal channel) {
        return channel <= 0.04045 ? channel / 12.92 : std::pow((channel + 0.055) / 1.055, 2.4);
    };
    return 0.2126 * linear(color.redF()) + 0.7152 * linear(color.greenF()) +
           0.0722 * linear(color.blueF());
}

}  // namespace

QColor mix(const QColor& from, const QColor& to, qreal share) {
    const auto channel = [share](int a, int b) { return qRound(a + (b - a) * share); };
    return {channel(from.red(), to.red()), channel(from.green(), to.green()),
            channel(from.blue(), to.blue()), channel(from.alpha(), to.alpha())};
}

bool isDark(const QPalette& palette) {
    return palette.color(QPalette::Window).lightness() <
           palette.color(QPalette::WindowText).lightness();
}

QColor hairline(const QPalette& palette) {
    return mix(palette.color(QPalette::Window), palette.color(QPalette::WindowText),
               isDark(palette) ? 0.16 : 0.14);
}

QColor mutedText(const QPalette& palette) {
    return mix(palette.color(QPalette::WindowText), palette.color(QPalette::Window), 0.34);
}

QColor raised(const QPalette& palette) {
    return mix(palette.color(QPalette::Base), palette.color(QPalette::WindowText), 0.055);
}

QColor hovered(const QPalette& palette) {
    return mix(palette.color(QPalette::Base), palette.color(QPalette::WindowText), 0.11);
}

QColor accent(const QPalette& palette) { return palette.color(QPalette::Highlight); }

qreal contrast(const QColor& a, const QColor& b) {
    const qreal first = luminance(a), second = luminance(b);
    return (std::max(first, second) + 0.05) / (std::min(first, second) + 0.05);
}

}  // namespace granary::gui

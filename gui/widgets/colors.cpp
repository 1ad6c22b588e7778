// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/widgets/colors.h"

#include "gui/theme/theme.h"

namespace granary::gui {

QColor hairline(const QPalette& palette) {
    return Theme::tones(palette).border;
}

QColor mutedText(const QPalette& palette) {
    return Theme::tones(palette).muted;
}

QColor raised(const QPalette& palette) {
    return palette.color(QPalette::AlternateBase);
}

QColor hovered(const QPalette& palette) {
    return Theme::tones(palette).hover;
}

QColor accent(const QPalette& palette) {
    return palette.color(QPalette::Highlight);
}

}  // namespace granary::gui

// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/engine/engine_types.h"

#include <QCoreApplication>
#include <QLocale>

namespace granary::gui {

QString durationText(double seconds) {
    const QLocale locale;
    const auto tr = [](const char* text) {
        return QCoreApplication::translate("granary::gui::durationText", text);
    };
    if (seconds < 10) return tr("%1 s").arg(locale.toString(seconds, 'f', 1));
    if (seconds < 90) return tr("%1 s").arg(locale.toString(qRound(seconds)));
    const int minutes = qRound(seconds / 60);
    if (minutes < 90) return tr("%1 min").arg(locale.toString(minutes));
    return tr("%1 h %2 min").arg(locale.toString(minutes / 60), locale.toString(minutes % 60));
}

}  // namespace granary::gui

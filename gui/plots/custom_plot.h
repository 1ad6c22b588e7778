// SPDX-License-Identifier: GPL-3.0-or-later
// QCustomPlot's header, which needs the keywords that our own sources leave out. To be included
// before any other header of Qt.
#pragma once

#undef QT_NO_FOREACH
#undef QT_NO_KEYWORDS
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wextra"
#include <qcustomplot.h>
#pragma GCC diagnostic pop
// "slots" is a word of the engine.
#undef signals
#undef slots
#undef emit
#undef foreach

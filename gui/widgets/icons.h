// SPDX-License-Identifier: GPL-3.0-or-later
// Line icons drawn as paths in the palette's text colour: sharp at every scale, no files, and
// right in both themes without being set again.
#pragma once

#include <QIcon>

namespace granary::gui {

enum class Glyph {
    add,
    attach,
    back,
    check,
    chip,
    close,
    copy,
    document,
    edit,
    folder,
    forward,
    library,
    map,
    menu,
    next,
    play,
    previous,
    refresh,
    search,
    send,
    sliders,
    stop,
    trash,
    undo,
    warning
};

// onAccent: drawn in HighlightedText, for filled buttons.
QIcon icon(Glyph glyph, bool onAccent = false);

}  // namespace granary::gui

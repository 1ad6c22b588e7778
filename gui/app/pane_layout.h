// SPDX-License-Identifier: GPL-3.0-or-later
// How wide the panes are at first, and when they fold.
#pragma once

#include <QSize>

namespace granary::gui {

struct PaneSizes {
    int library = 0;  // width
    int vram = 0;     // width
    int bottom = 0;   // height; 0: closed
};

// For a window of this size, logical pixels: the figures of the design at 1366x768, 1920x1080 and
// 3840x2160, the same shares beyond and between.
PaneSizes firstSizes(QSize window);

inline constexpr int kLibraryFolds = 1100;  // narrower windows show a rail
inline constexpr int kVramFolds = 900;
inline constexpr QSize kLeastWindow{800, 560};

}  // namespace granary::gui

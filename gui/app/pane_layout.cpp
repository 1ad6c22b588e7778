// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/pane_layout.h"

namespace granary::gui {

PaneSizes firstSizes(QSize window) {
    struct Step {
        int width;
        PaneSizes sizes;
    };
    constexpr Step kSteps[] = {
        {1366, {200, 440, 0}}, {1920, {240, 600, 180}}, {3840, {320, 1300, 420}}};
    const int width = window.width();
    if (width < kSteps[0].width) {
        // The map keeps a third; the rest is for reading.
        return {200, qMax(280, width / 3), 0};
    }
    for (size_t i = 1; i < std::size(kSteps); ++i) {
        const Step &low = kSteps[i - 1], &high = kSteps[i];
        if (width > high.width) continue;
        const double share = static_cast<double>(width - low.width) / (high.width - low.width);
        const auto between = [share](int a, int b) { return qRound(a + (b - a) * share); };
        const int bottom =
            share < 1 && low.sizes.bottom == 0 ? 0 : between(low.sizes.bottom, high.sizes.bottom);
        return {between(low.sizes.library, high.sizes.library),
                between(low.sizes.vram, high.sizes.vram), bottom};
    }
    return kSteps[2].sizes;
}

}  // namespace granary::gui

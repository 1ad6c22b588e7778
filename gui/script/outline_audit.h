// SPDX-License-Identifier: GPL-3.0-or-later
// How well the boundary of a control stands out from what surrounds it, as drawn.
#pragma once

#include <QWidget>
#include <optional>

namespace granary::gui {

inline constexpr double kLeastOutline = 3;  // WCAG 2.1, 1.4.11

// The least contrast, over the four sides, of a control's outline against the pixels outside it.
// Nothing for a widget that is no field, spin box, list, check box or radio button,
// that is part of one, or of which no side can be seen.
std::optional<double> outlineContrast(QWidget* widget);

}  // namespace granary::gui

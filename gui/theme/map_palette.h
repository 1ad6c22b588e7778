// SPDX-License-Identifier: GPL-3.0-or-later
// The colours of the memory map, one pair for dark and light. The fills were searched for the
// largest smallest distance under normal sight, protanopia, deuteranopia, tritanopia and in grey;
// colour is never alone: the loan is hatched, a quarantined granule is crossed, a granule in
// transfer is outlined, and fills that come close to the canvas have a darker border.
#pragma once

#include <QColor>
#include <QPalette>
#include <QString>
#include <array>

#include "granary/telemetry.h"

namespace granary::gui {

inline constexpr int kRecencySteps = 5;  // of experts: 0 is the longest ago

struct ClassLook {
    QColor fill;
    QColor border;  // 1 px; invalid: none
    QColor mark;    // hatch or cross; invalid: none
};

struct MapPalette {
    QColor canvas;    // behind the cells
    QColor hollow;    // outline of a place that is not mapped
    QColor transfer;  // outline of a granule in transfer
    QColor ring;      // around the cell under the pointer or cursor
    QColor pin;       // around the pinned cell
    QColor flash;     // what a cell that changed hands fades from
    QColor text;      // labels on the canvas, 4.5:1
    std::array<ClassLook, kOwners> classes;
    std::array<QColor, kRecencySteps> experts;  // fills, the last one is classes[experts].fill

    const ClassLook& look(Owner owner) const { return classes[static_cast<size_t>(owner)]; }

    static const MapPalette& of(bool dark);
    static const MapPalette& of(const QPalette& palette);
};

// An owner class in a person's words: what it is for, one sentence.
QString ownerMeaning(Owner owner);

}  // namespace granary::gui

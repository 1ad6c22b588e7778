// SPDX-License-Identifier: GPL-3.0-or-later
// Paints one cell of the map, and swatches that look like it.
#pragma once

#include <QImage>
#include <QPainter>
#include <QRectF>

#include "gui/theme/map_palette.h"
#include "gui/vram/cell_key.h"

namespace granary::gui {

// A cell of `size` device pixels a side, gap excluded; Format_RGB32.
QImage cellImage(const MapPalette& palette, CellKey key, int size);

// A legend's swatch: the class's fill, border and mark in `rect`.
void paintSwatch(QPainter& painter, const MapPalette& palette, Owner owner, const QRectF& rect,
                 qreal radius);
// A segment of a bar: fill and mark; the bar has the border.
void paintSegment(QPainter& painter, const MapPalette& palette, Owner owner, const QRectF& rect);

}  // namespace granary::gui

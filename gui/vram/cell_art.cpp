// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/vram/cell_art.h"

#include <QPainterPath>
#include <algorithm>

#include "gui/theme/contrast.h"

namespace granary::gui {

namespace {

constexpr int kMarkFrom = 3;    // pixels from which a mark can be seen
constexpr int kBorderFrom = 5;  // ... and a border leaves room for the fill
constexpr int kRoundFrom = 9;   // ... and rounded corners read as such

void paintMark(QPainter& painter, Owner owner, const QColor& color, const QRectF& r) {
    painter.setPen(QPen(color, r.width() >= 12 ? 1.5 : 1.0));
    if (owner == Owner::quarantined) {
        const qreal in = r.width() * 0.25;
        const QRectF x = r.adjusted(in, in, -in, -in);
        painter.drawLine(x.topLeft(), x.bottomRight());
        painter.drawLine(x.topRight(), x.bottomLeft());
        return;
    }
    // Diagonals that go on from cell to cell would need the cell's place; three of a cell's own
    // read as a hatch just as well.
    const qreal pitch = std::clamp(r.height() / 2.5, 3.0, 6.0);
    painter.save();
    painter.setClipRect(r, Qt::IntersectClip);
    for (qreal at = pitch / 2; at < r.width() + r.height(); at += pitch)
        painter.drawLine(QPointF(r.left() + at - r.height(), r.bottom()),
                         QPointF(r.left() + at, r.top()));
    painter.restore();
}

}  // namespace

QImage cellImage(const MapPalette& palette, CellKey key, int size) {
    QImage image(size, size, QImage::Format_RGB32);
    image.fill(palette.canvas);
    QPainter painter(&image);
    painter.setRenderHint(QPainter::Antialiasing, size >= kRoundFrom);
    const qreal radius = size >= 16 ? 2.5 : size >= kRoundFrom ? 1.5 : 0;
    const QRectF whole(0, 0, size, size);
    const auto outlined = [&](const QColor& color) {
        if (size < 3) {
            painter.fillRect(image.rect(), color);
            return;
        }
        painter.setPen(QPen(color, 1));
        painter.setBrush(Qt::NoBrush);
        painter.drawRoundedRect(whole.adjusted(0.5, 0.5, -0.5, -0.5), radius, radius);
    };
    if (key.hollow()) {
        outlined(palette.hollow);
        return image;
    }
    const ClassLook& look = palette.look(key.owner());
    QColor fill =
        key.owner() == Owner::experts
            ? palette.experts[static_cast<size_t>(std::min(key.recency(), kRecencySteps - 1))]
            : look.fill;
    if (key.dimmed()) {
        outlined(mixed(palette.canvas, fill, 0.25));
        return image;
    }
    if (key.flash() > 0) fill = mixed(fill, palette.flash, 0.22 * key.flash());
    painter.setPen(Qt::NoPen);
    painter.setBrush(fill);
    if (radius > 0)
        painter.drawRoundedRect(whole, radius, radius);
    else
        painter.fillRect(image.rect(), fill);
    if (look.mark.isValid() && size >= kMarkFrom) paintMark(painter, key.owner(), look.mark, whole);
    if (look.border.isValid() && size >= kBorderFrom) outlined(look.border);
    if (key.transfer()) outlined(palette.transfer);
    return image;
}

void paintSegment(QPainter& painter, const MapPalette& palette, Owner owner, const QRectF& rect) {
    const ClassLook& look = palette.look(owner);
    painter.fillRect(rect, look.fill);
    if (!look.mark.isValid()) return;
    painter.save();
    painter.setClipRect(rect, Qt::IntersectClip);
    if (owner == Owner::quarantined) {
        const qreal side = std::min(rect.width(), rect.height());
        QRectF square(0, 0, side, side);
        square.moveCenter(rect.center());
        paintMark(painter, owner, look.mark, square);
    } else {
        painter.setPen(QPen(look.mark, 1));
        for (qreal at = 2; at < rect.width() + rect.height(); at += 5)
            painter.drawLine(QPointF(rect.left() + at - rect.height(), rect.bottom()),
                             QPointF(rect.left() + at, rect.top()));
    }
    painter.restore();
}

void paintSwatch(QPainter& painter, const MapPalette& palette, Owner owner, const QRectF& rect,
                 qreal radius) {
    const ClassLook& look = palette.look(owner);
    painter.save();
    painter.setRenderHint(QPainter::Antialiasing);
    QPainterPath shape;
    shape.addRoundedRect(rect, radius, radius);
    painter.save();
    painter.setClipPath(shape, Qt::IntersectClip);
    paintSegment(painter, palette, owner, rect);
    painter.restore();
    if (look.border.isValid()) {
        painter.setPen(QPen(look.border, 1));
        painter.setBrush(Qt::NoBrush);
        painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), radius, radius);
    }
    painter.restore();
}

}  // namespace granary::gui

// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/widgets/icons.h"

#include <QGuiApplication>
#include <QIconEngine>
#include <QPainter>
#include <QPainterPath>
#include <QPalette>
#include <initializer_list>

namespace granary::gui {

namespace {

// Paths on a grid of 16.
void line(QPainterPath& path, std::initializer_list<QPointF> points) {
    auto point = points.begin();
    path.moveTo(*point);
    while (++point != points.end()) path.lineTo(*point);
}

struct Drawing {
    QPainterPath stroke, fill;
};

Drawing drawing(Glyph glyph) {
    Drawing d;
    QPainterPath& s = d.stroke;
    switch (glyph) {
        case Glyph::add:
            line(s, {{8, 3}, {8, 13}});
            line(s, {{3, 8}, {13, 8}});
            break;
        case Glyph::attach:
            s.moveTo(12.5, 7.5);
            s.lineTo(7.8, 12.2);
            s.cubicTo(6.4, 13.6, 4.3, 13.4, 3.2, 12.3);
            s.cubicTo(2.1, 11.2, 2, 9.2, 3.4, 7.8);
            s.lineTo(8.2, 3);
            s.cubicTo(9.1, 2.1, 10.5, 2.2, 11.3, 3);
            s.cubicTo(12.1, 3.8, 12.2, 5.2, 11.3, 6.1);
            s.lineTo(6.7, 10.6);
            s.cubicTo(6.3, 11, 5.7, 11, 5.3, 10.6);
            s.cubicTo(4.9, 10.2, 4.9, 9.6, 5.3, 9.2);
            s.lineTo(9.4, 5.1);
            break;
        case Glyph::back:
            line(s, {{10, 3}, {5, 8}, {10, 13}});
            break;
        case Glyph::forward:
            line(s, {{6, 3}, {11, 8}, {6, 13}});
            break;
        case Glyph::check:
            line(s, {{3, 8.5}, {6.5, 12}, {13, 4.5}});
            break;
        case Glyph::chip:
            s.addRoundedRect(QRectF(4, 4, 8, 8), 1, 1);
            for (const qreal at : {6.0, 10.0}) {
                line(s, {{at, 1.5}, {at, 4}});
                line(s, {{at, 12}, {at, 14.5}});
                line(s, {{1.5, at}, {4, at}});
                line(s, {{12, at}, {14.5, at}});
            }
            break;
        case Glyph::close:
            line(s, {{4, 4}, {12, 12}});
            line(s, {{12, 4}, {4, 12}});
            break;
        case Glyph::copy:
            s.addRoundedRect(QRectF(5.5, 5.5, 8, 8), 1.5, 1.5);
            line(s, {{10.5, 3}, {10.5, 2.5}, {2.5, 2.5}, {2.5, 10.5}, {3, 10.5}});
            break;
        case Glyph::document:
            line(s, {{9.5, 2},
                     {3.5, 2},
                     {3.5, 14},
                     {12.5, 14},
                     {12.5, 5},
                     {9.5, 2},
                     {9.5, 5},
                     {12.5, 5}});
            line(s, {{6, 8}, {10, 8}});
            line(s, {{6, 11}, {10, 11}});
            break;
        case Glyph::edit:
            line(s, {{3, 13}, {3.6, 10.2}, {11, 2.8}, {13.2, 5}, {5.8, 12.4}, {3, 13}});
            break;
        case Glyph::folder:
            line(s, {{2, 12.5}, {2, 3.5}, {6.5, 3.5}, {8, 5.5}, {14, 5.5}, {14, 12.5}, {2, 12.5}});
            break;
        case Glyph::library:
            s.addRoundedRect(QRectF(2, 3, 12, 10), 1.5, 1.5);
            line(s, {{6.5, 3}, {6.5, 13}});
            break;
        case Glyph::map:
            for (const qreal x : {2.5, 6.75, 11.0}) {
                for (const qreal y : {2.5, 6.75, 11.0}) s.addRect(QRectF(x, y, 2.5, 2.5));
            }
            break;
        case Glyph::menu:
            for (const qreal x : {3.5, 8.0, 12.5}) d.fill.addEllipse(QPointF(x, 8), 1.2, 1.2);
            break;
        case Glyph::next:
            line(s, {{3, 6}, {8, 11}, {13, 6}});
            break;
        case Glyph::previous:
            line(s, {{3, 11}, {8, 6}, {13, 11}});
            break;
        case Glyph::play:
            d.fill.addPolygon(QPolygonF({{4.5, 2.5}, {13, 8}, {4.5, 13.5}}));
            break;
        case Glyph::refresh:
            s.arcMoveTo(QRectF(2.5, 2.5, 11, 11), 20);
            s.arcTo(QRectF(2.5, 2.5, 11, 11), 20, 300);
            line(s, {{13.6, 2.6}, {13.4, 6.2}, {9.8, 6.0}});
            break;
        case Glyph::search:
            s.addEllipse(QPointF(7, 7), 4.2, 4.2);
            line(s, {{10.2, 10.2}, {13.8, 13.8}});
            break;
        case Glyph::send:
            line(s, {{8, 13}, {8, 3.5}});
            line(s, {{3.8, 7.6}, {8, 3.4}, {12.2, 7.6}});
            break;
        case Glyph::sliders:
            line(s, {{2, 5}, {9, 5}});
            line(s, {{13, 5}, {14, 5}});
            s.addEllipse(QPointF(11, 5), 2, 2);
            line(s, {{2, 11}, {3, 11}});
            line(s, {{7, 11}, {14, 11}});
            s.addEllipse(QPointF(5, 11), 2, 2);
            break;
        case Glyph::stop:
            d.fill.addRoundedRect(QRectF(3.5, 3.5, 9, 9), 1.5, 1.5);
            break;
        case Glyph::trash:
            line(s, {{2.5, 4}, {13.5, 4}});
            line(s, {{6, 4}, {6, 2}, {10, 2}, {10, 4}});
            line(s, {{4, 4}, {4.8, 14}, {11.2, 14}, {12, 4}});
            break;
        case Glyph::undo:
            line(s, {{6, 2.5}, {2.5, 6}, {6, 9.5}});
            s.moveTo(2.5, 6);
            s.lineTo(9.5, 6);
            s.cubicTo(15, 6, 15, 13.5, 9.5, 13.5);
            s.lineTo(6, 13.5);
            break;
        case Glyph::warning:
            line(s, {{8, 2.5}, {14.5, 13.5}, {1.5, 13.5}, {8, 2.5}});
            line(s, {{8, 6.5}, {8, 9.5}});
            d.fill.addEllipse(QPointF(8, 11.5), 0.9, 0.9);
            break;
    }
    return d;
}

class GlyphEngine : public QIconEngine {
  public:
    GlyphEngine(Glyph glyph, bool onAccent) : m_glyph(glyph), m_onAccent(onAccent) {}

    void paint(QPainter* painter, const QRect& rect, QIcon::Mode mode, QIcon::State) override {
        const QPalette palette = QGuiApplication::palette();
        const QColor color =
            palette.color(mode == QIcon::Disabled ? QPalette::Disabled : QPalette::Active,
                          m_onAccent && mode != QIcon::Disabled ? QPalette::HighlightedText
                                                                : QPalette::WindowText);
        const qreal side = qMin(rect.width(), rect.height());
        const Drawing d = drawing(m_glyph);
        painter->save();
        painter->setRenderHint(QPainter::Antialiasing);
        painter->translate(rect.x() + (rect.width() - side) / 2,
                           rect.y() + (rect.height() - side) / 2);
        painter->scale(side / 16, side / 16);
        painter->setPen(QPen(color, 1.35, Qt::SolidLine, Qt::RoundCap, Qt::RoundJoin));
        painter->drawPath(d.stroke);
        painter->fillPath(d.fill, color);
        painter->restore();
    }

    QPixmap pixmap(const QSize& size, QIcon::Mode mode, QIcon::State state) override {
        QPixmap pixmap(size);
        pixmap.fill(Qt::transparent);
        QPainter painter(&pixmap);
        paint(&painter, QRect(QPoint(0, 0), size), mode, state);
        return pixmap;
    }

    QIconEngine* clone() const override { return new GlyphEngine(*this); }

  private:
    Glyph m_glyph;
    bool m_onAccent;
};

}  // namespace

QIcon icon(Glyph glyph, bool onAccent) {
    return QIcon(new GlyphEngine(glyph, onAccent));
}

}  // namespace granary::gui

// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/script/outline_audit.h"

#include <QAbstractSpinBox>
#include <QCheckBox>
#include <QComboBox>
#include <QImage>
#include <QLineEdit>
#include <QPlainTextEdit>
#include <QRadioButton>
#include <QStyle>
#include <QStyleOptionButton>
#include <algorithm>

#include "gui/theme/contrast.h"
#include "gui/widgets/panel.h"

namespace granary::gui {

namespace {

constexpr int kDeep = 3;     // pixels inward in which an outline must show
constexpr int kOutside = 2;  // pixels outward where the surroundings are looked at

// Where the control's boundary lies, in its own coordinates; empty: it has none to show.
QRect boundary(QWidget* widget) {
    if (qobject_cast<QCheckBox*>(widget) || qobject_cast<QRadioButton*>(widget)) {
        QStyleOptionButton option;
        option.initFrom(widget);
        const auto element = qobject_cast<QCheckBox*>(widget) ? QStyle::SE_CheckBoxIndicator
                                                              : QStyle::SE_RadioButtonIndicator;
        return widget->style()->subElementRect(element, &option, widget);
    }
    if (const auto* line = qobject_cast<QLineEdit*>(widget))
        return line->hasFrame() ? widget->rect() : QRect();
    if (const auto* text = qobject_cast<QPlainTextEdit*>(widget))
        return text->frameShape() == QFrame::NoFrame ? QRect() : widget->rect();
    const bool whole = qobject_cast<QAbstractSpinBox*>(widget) ||
                       qobject_cast<QComboBox*>(widget) || qobject_cast<Panel*>(widget);
    return whole ? widget->rect() : QRect();
}

}  // namespace

std::optional<double> outlineContrast(QWidget* widget) {
    const QRect box = boundary(widget);
    if (box.isEmpty() || !widget->isVisible()) return std::nullopt;
    for (QWidget* owner = widget->parentWidget(); owner; owner = owner->parentWidget())
        if (qobject_cast<QAbstractSpinBox*>(owner) || qobject_cast<QComboBox*>(owner))
            return std::nullopt;
    QWidget* window = widget->window();
    const QPoint at = widget->mapTo(window, QPoint(0, 0));
    const QRect seen = widget->visibleRegion().boundingRect().translated(at);
    const QRect place = box.translated(at);
    const QImage image = window->grab().toImage();
    const qreal scale = image.devicePixelRatio();
    const auto pixel = [&](QPointF where) {
        return QColor(image.pixel((where * scale).toPoint()));
    };
    std::optional<double> least;
    const QPointF middle = QRectF(place).center();
    struct Side {
        QPointF edge, inward;
    };
    for (const Side& side : {Side{{qreal(place.left()), middle.y()}, {1, 0}},
                             Side{{qreal(place.right()), middle.y()}, {-1, 0}},
                             Side{{middle.x(), qreal(place.top())}, {0, 1}},
                             Side{{middle.x(), qreal(place.bottom())}, {0, -1}}}) {
        const QPointF outside = side.edge - kOutside * side.inward;
        if (!seen.contains(side.edge.toPoint()) || !window->rect().contains(outside.toPoint()))
            continue;
        double best = 1;
        for (int step = 0; step < kDeep; ++step)
            best = std::max(best,
                            contrastRatio(pixel(side.edge + step * side.inward), pixel(outside)));
        least = std::min(least.value_or(best), best);
    }
    return least;
}

}  // namespace granary::gui

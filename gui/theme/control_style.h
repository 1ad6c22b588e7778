// SPDX-License-Identifier: GPL-3.0-or-later
// Fusion with the program's own fields, boxes, buttons of choice and sliders.
//
// Fusion derives a control's outline from the window's colour, which on a dark window leaves
// almost none. Here every control that a person sets a value with has an outline of
// Tones::control, 3:1 against each surface that it may stand on (WCAG 2.1, 1.4.11), in each of
// its states; the focus is a ring of two pixels in Tones::focus.
#pragma once

#include <QProxyStyle>

namespace granary::gui {

class ControlStyle : public QProxyStyle {
    Q_OBJECT
  public:
    ControlStyle();

    void drawPrimitive(PrimitiveElement element, const QStyleOption* option, QPainter* painter,
                       const QWidget* widget) const override;
    void drawComplexControl(ComplexControl control, const QStyleOptionComplex* option,
                            QPainter* painter, const QWidget* widget) const override;
    int pixelMetric(PixelMetric metric, const QStyleOption* option,
                    const QWidget* widget) const override;
    QSize sizeFromContents(ContentsType type, const QStyleOption* option, const QSize& size,
                           const QWidget* widget) const override;
    QRect subElementRect(SubElement element, const QStyleOption* option,
                         const QWidget* widget) const override;
    QRect subControlRect(ComplexControl control, const QStyleOptionComplex* option, SubControl part,
                         const QWidget* widget) const override;
};

}  // namespace granary::gui

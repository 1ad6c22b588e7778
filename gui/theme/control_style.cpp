// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/theme/control_style.h"

#include <QAbstractScrollArea>
#include <QAbstractSpinBox>
#include <QComboBox>
#include <QPainter>
#include <QStyleOption>
#include <algorithm>

#include "gui/theme/metrics.h"
#include "gui/theme/theme.h"

namespace granary::gui {

namespace {

constexpr int kIndicator = 16;    // side of a check box, diameter of a radio button
constexpr int kPadding = 5;       // between a field's outline and its text, beside Qt's own 2
constexpr int kSpinButtons = 20;  // width
constexpr qreal kHandle = 6;      // of a slider, radius
constexpr qreal kGroove = 4;      // of a slider, height

bool is(const QStyleOption* option, QStyle::StateFlag flag) {
    return option->state & flag;
}

// The outline of a control in its state. The ring of the focus is twice as wide, so that it does
// not rest on a colour alone.
QPen outline(const QStyleOption* option, bool showsFocus = true) {
    const Tones& tones = Theme::tones(option->palette);
    if (!is(option, QStyle::State_Enabled)) return QPen(tones.controlDisabled, 1);
    if (showsFocus && is(option, QStyle::State_HasFocus)) return QPen(tones.focus, 2);
    if (is(option, QStyle::State_MouseOver))
        return QPen(option->palette.color(QPalette::WindowText), 1);
    return QPen(tones.control, 1);
}

// What cannot be written in has the colour of the window, as if it were printed there.
QColor fieldFill(const QStyleOption* option) {
    return option->palette.color(is(option, QStyle::State_Enabled) ? QPalette::Base
                                                                   : QPalette::Window);
}

QColor buttonFill(const QStyleOption* option) {
    const Tones& tones = Theme::tones(option->palette);
    if (!is(option, QStyle::State_Enabled)) return option->palette.color(QPalette::Window);
    return is(option, QStyle::State_MouseOver) || is(option, QStyle::State_On) ? tones.hover
                                                                               : tones.card;
}

// A rounded box whose outline lies inside the rectangle, on whole pixels.
void drawBox(QPainter* painter, const QRect& rect, const QColor& fill, const QPen& pen,
             qreal radius = metrics::kRadius) {
    painter->save();
    painter->setRenderHint(QPainter::Antialiasing);
    const qreal inset = pen.widthF() / 2;
    painter->setPen(pen);
    painter->setBrush(fill);
    painter->drawRoundedRect(QRectF(rect).adjusted(inset, inset, -inset, -inset), radius, radius);
    painter->restore();
}

void drawChevron(QPainter* painter, const QPointF& centre, bool up, qreal width,
                 const QColor& colour) {
    painter->save();
    painter->setRenderHint(QPainter::Antialiasing);
    QPen pen(colour, 1.5, Qt::SolidLine, Qt::RoundCap, Qt::RoundJoin);
    painter->setPen(pen);
    const qreal x = width / 2, y = (up ? -1 : 1) * width / 4;
    const QPointF points[] = {centre + QPointF(-x, -y), centre + QPointF(0, y),
                              centre + QPointF(x, -y)};
    painter->drawPolyline(points, 3);
    painter->restore();
}

// The box or ring of a choice. Chosen it is filled with the accent, whose outline is the accent
// as text has it: the fill alone comes too close to a raised surface on a dark window.
void drawIndicator(QPainter* painter, const QStyleOption* option, bool round) {
    const bool enabled = is(option, QStyle::State_Enabled);
    const bool chosen = !is(option, QStyle::State_Off);
    QPen pen = outline(option, false);  // the ring of the focus is around its words
    QColor fill = fieldFill(option), mark = option->palette.color(QPalette::Text);
    if (chosen && enabled) {
        fill = option->palette.color(QPalette::Highlight);
        mark = option->palette.color(QPalette::HighlightedText);
        if (!is(option, QStyle::State_MouseOver))
            pen.setColor(Theme::tones(option->palette).accent);
    }
    // A thin ring is blurred into its surroundings where it is no straight line.
    if (round && pen.widthF() < 1.5) pen.setWidthF(1.5);
    const int side = std::min(option->rect.width(), option->rect.height());
    QRect box(0, 0, side, side);
    box.moveCenter(option->rect.center());
    drawBox(painter, box, fill, pen, round ? side / 2.0 : 3);
    if (!chosen) return;
    painter->save();
    painter->setRenderHint(QPainter::Antialiasing);
    const QRectF area(box);
    if (round) {
        painter->setPen(Qt::NoPen);
        painter->setBrush(mark);
        painter->drawEllipse(area.center(), side * 0.22, side * 0.22);
    } else {
        painter->setPen(QPen(mark, 2, Qt::SolidLine, Qt::RoundCap, Qt::RoundJoin));
        const auto at = [&](qreal x, qreal y) {
            return QPointF(area.left() + x * side, area.top() + y * side);
        };
        if (is(option, QStyle::State_NoChange)) {
            painter->drawLine(at(0.3, 0.5), at(0.7, 0.5));
        } else {
            const QPointF points[] = {at(0.26, 0.52), at(0.43, 0.69), at(0.74, 0.33)};
            painter->drawPolyline(points, 3);
        }
    }
    painter->restore();
}

void drawCombo(const QStyle* style, const QStyleOptionComboBox* option, QPainter* painter,
               const QWidget* widget) {
    const QRect arrow =
        style->subControlRect(QStyle::CC_ComboBox, option, QStyle::SC_ComboBoxArrow, widget);
    if (option->frame) drawBox(painter, option->rect, buttonFill(option), outline(option));
    drawChevron(painter, QRectF(arrow).center(), false, 8,
                option->palette.color(QPalette::ButtonText));
}

void drawSpin(const QStyle* style, const QStyleOptionSpinBox* option, QPainter* painter,
              const QWidget* widget) {
    if (option->frame) drawBox(painter, option->rect, fieldFill(option), outline(option));
    if (option->buttonSymbols == QAbstractSpinBox::NoButtons) return;
    const QRect up =
        style->subControlRect(QStyle::CC_SpinBox, option, QStyle::SC_SpinBoxUp, widget);
    const QRect down =
        style->subControlRect(QStyle::CC_SpinBox, option, QStyle::SC_SpinBoxDown, widget);
    const Tones& tones = Theme::tones(option->palette);
    const auto button = [&](const QRect& at, QStyle::SubControl part, bool can, bool isUp) {
        can = can && is(option, QStyle::State_Enabled);
        if (can && (option->activeSubControls & part))
            painter->fillRect(at, is(option, QStyle::State_Sunken) ? tones.border : tones.hover);
        drawChevron(painter, QRectF(at).center() + QPointF(0, isUp ? 0.5 : -0.5), isUp, 6,
                    can ? option->palette.color(QPalette::Text) : tones.controlDisabled);
    };
    button(up, QStyle::SC_SpinBoxUp, option->stepEnabled & QAbstractSpinBox::StepUpEnabled, true);
    button(down, QStyle::SC_SpinBoxDown, option->stepEnabled & QAbstractSpinBox::StepDownEnabled,
           false);
}

void drawSlider(const QStyle* style, const QStyleOptionSlider* option, QPainter* painter,
                const QWidget* widget) {
    const Tones& tones = Theme::tones(option->palette);
    const bool enabled = is(option, QStyle::State_Enabled);
    const QRectF handle(
        style->subControlRect(QStyle::CC_Slider, option, QStyle::SC_SliderHandle, widget));
    const QRectF whole(option->rect);
    const qreal y = whole.center().y();
    const QRectF track(whole.left() + 2, y - kGroove / 2, whole.width() - 4, kGroove);
    painter->save();
    painter->setRenderHint(QPainter::Antialiasing);
    painter->setPen(Qt::NoPen);
    painter->setBrush(enabled ? tones.controlDisabled : tones.border);
    painter->drawRoundedRect(track, 2, 2);
    const QPointF centre(handle.center().x(), y);
    if (enabled) {
        QRectF below = track;
        if (option->upsideDown)
            below.setLeft(centre.x());
        else
            below.setRight(centre.x());
        painter->setBrush(tones.accent);
        painter->drawRoundedRect(below, 2, 2);
    }
    QPen ring(enabled ? tones.accent : tones.controlDisabled, 2);
    if (is(option, QStyle::State_HasFocus)) ring.setWidthF(4);
    painter->setPen(ring);
    painter->setBrush(option->palette.color(QPalette::Base));
    painter->drawEllipse(centre, kHandle, kHandle);
    painter->restore();
}

}  // namespace

ControlStyle::ControlStyle() : QProxyStyle(QStringLiteral("Fusion")) {}

void ControlStyle::drawPrimitive(PrimitiveElement element, const QStyleOption* option,
                                 QPainter* painter, const QWidget* widget) const {
    switch (element) {
        case PE_PanelLineEdit: {
            const auto* frame = qstyleoption_cast<const QStyleOptionFrame*>(option);
            if (frame && frame->lineWidth > 0) {
                drawBox(painter, option->rect, fieldFill(option), outline(option));
            } else if (!widget || !(qobject_cast<QAbstractSpinBox*>(widget->parentWidget()) ||
                                    qobject_cast<QComboBox*>(widget->parentWidget()))) {
                painter->fillRect(option->rect, fieldFill(option));
            }
            return;
        }
        case PE_FrameLineEdit:
            return;  // drawn with its panel
        case PE_IndicatorCheckBox:
            return drawIndicator(painter, option, false);
        case PE_IndicatorRadioButton:
            return drawIndicator(painter, option, true);
        case PE_FrameFocusRect: {
            QPen pen(Theme::tones(option->palette).focus, 1.5);
            return drawBox(painter, option->rect, Qt::transparent, pen, 3);
        }
        case PE_PanelButtonTool:
            if (is(option, State_Enabled) &&
                (option->state & (State_MouseOver | State_On | State_Sunken | State_HasFocus))) {
                const Tones& tones = Theme::tones(option->palette);
                const bool held = is(option, State_On) || is(option, State_Sunken);
                QPen pen(held ? tones.control : QColor(Qt::transparent), 1);
                if (is(option, State_HasFocus)) pen = QPen(tones.focus, 2);
                const bool filled = held || is(option, State_MouseOver);
                drawBox(painter, option->rect, filled ? tones.hover : QColor(Qt::transparent), pen);
            }
            return;
        case PE_Frame:
            if (qobject_cast<const QAbstractScrollArea*>(widget)) {
                // The viewport inside has square corners.
                return drawBox(painter, option->rect, Qt::transparent, outline(option), 0);
            }
            break;
        default:
            break;
    }
    QProxyStyle::drawPrimitive(element, option, painter, widget);
}

void ControlStyle::drawComplexControl(ComplexControl control, const QStyleOptionComplex* option,
                                      QPainter* painter, const QWidget* widget) const {
    if (const auto* combo = qstyleoption_cast<const QStyleOptionComboBox*>(option);
        control == CC_ComboBox && combo && !combo->editable)
        return drawCombo(proxy(), combo, painter, widget);
    if (const auto* spin = qstyleoption_cast<const QStyleOptionSpinBox*>(option);
        control == CC_SpinBox && spin)
        return drawSpin(proxy(), spin, painter, widget);
    if (const auto* slider = qstyleoption_cast<const QStyleOptionSlider*>(option);
        control == CC_Slider && slider && slider->orientation == Qt::Horizontal)
        return drawSlider(proxy(), slider, painter, widget);
    QProxyStyle::drawComplexControl(control, option, painter, widget);
}

int ControlStyle::pixelMetric(PixelMetric metric, const QStyleOption* option,
                              const QWidget* widget) const {
    switch (metric) {
        case PM_IndicatorWidth:
        case PM_IndicatorHeight:
        case PM_ExclusiveIndicatorWidth:
        case PM_ExclusiveIndicatorHeight:
            return kIndicator;
        case PM_DefaultFrameWidth:
            // Of a text's frame: the ring of the focus needs two pixels.
            if (qobject_cast<const QAbstractScrollArea*>(widget)) return 2;
            return QProxyStyle::pixelMetric(metric, option, widget);
        default:
            return QProxyStyle::pixelMetric(metric, option, widget);
    }
}

QSize ControlStyle::sizeFromContents(ContentsType type, const QStyleOption* option,
                                     const QSize& size, const QWidget* widget) const {
    QSize result = QProxyStyle::sizeFromContents(type, option, size, widget);
    switch (type) {
        case CT_LineEdit: {
            const auto* frame = qstyleoption_cast<const QStyleOptionFrame*>(option);
            if (!frame || frame->lineWidth == 0) break;
            result.rwidth() += 2 * kPadding;
            result.setHeight(std::max(result.height(), metrics::kControl));
            break;
        }
        case CT_ComboBox:
            result.rwidth() += kPadding;
            result.setHeight(std::max(result.height(), metrics::kControl));
            break;
        default:
            break;
    }
    return result;
}

QRect ControlStyle::subElementRect(SubElement element, const QStyleOption* option,
                                   const QWidget* widget) const {
    const QRect rect = QProxyStyle::subElementRect(element, option, widget);
    if (element == SE_LineEditContents) {
        const auto* frame = qstyleoption_cast<const QStyleOptionFrame*>(option);
        if (frame && frame->lineWidth > 0) return rect.adjusted(kPadding - 1, 0, -kPadding + 1, 0);
    }
    return rect;
}

QRect ControlStyle::subControlRect(ComplexControl control, const QStyleOptionComplex* option,
                                   SubControl part, const QWidget* widget) const {
    const QRect rect = QProxyStyle::subControlRect(control, option, part, widget);
    const QRect all = option->rect;
    if (control == CC_ComboBox && part == SC_ComboBoxEditField)
        return visualRect(option->direction, all,
                          QRect(all.left() + kPadding, all.top() + 1, all.width() - kPadding - 24,
                                all.height() - 2));
    if (control == CC_SpinBox) {
        const auto* spin = qstyleoption_cast<const QStyleOptionSpinBox*>(option);
        const bool buttons = spin && spin->buttonSymbols != QAbstractSpinBox::NoButtons;
        const int width = buttons ? kSpinButtons : kPadding;
        // Two pixels all round are the outline's, so that the ring of the focus is whole.
        const QRect inner = all.adjusted(2, 2, -2, -2);
        const int half = inner.height() / 2;
        QRect place = rect;
        if (part == SC_SpinBoxEditField)
            place = QRect(inner.left() + 2, inner.top(), inner.width() - width - 2, inner.height());
        else if (part == SC_SpinBoxUp)
            place = QRect(inner.right() - width + 1, inner.top(), width, half);
        else if (part == SC_SpinBoxDown)
            place =
                QRect(inner.right() - width + 1, inner.top() + half, width, inner.height() - half);
        else
            return rect;
        return visualRect(option->direction, all, place);
    }
    return rect;
}

}  // namespace granary::gui

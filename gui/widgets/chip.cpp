// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/widgets/chip.h"

#include <QKeyEvent>
#include <QMouseEvent>
#include <QPainter>

#include "gui/theme/metrics.h"
#include "gui/widgets/colors.h"
#include "gui/widgets/icons.h"

namespace granary::gui {

namespace {
constexpr int kPad = 10, kGap = 6, kIcon = 16, kDot = 8, kHeight = metrics::kControl;
}

Chip::Chip(QWidget* parent) : QAbstractButton(parent) {
    setFocusPolicy(Qt::TabFocus);
    setMouseTracking(true);
    setSizePolicy(QSizePolicy::Preferred, QSizePolicy::Fixed);
}

void Chip::setDot(const QColor& color) {
    m_dot = color;
    updateGeometry();
    update();
}

void Chip::setNote(const QString& note) {
    m_note = note;
    updateGeometry();
    update();
}

void Chip::setRemovable(bool removable) {
    m_removable = removable;
    updateGeometry();
}

void Chip::setOutlined(bool outlined) {
    m_outlined = outlined;
    update();
}

int Chip::fixedWidth() const {
    int width = 2 * kPad;
    if (m_dot.isValid()) width += kDot + kGap;
    if (!icon().isNull()) width += kIcon + kGap;
    if (!m_note.isEmpty()) width += kGap + fontMetrics().horizontalAdvance(m_note);
    if (m_removable) width += kGap + kIcon;
    return width;
}

QSize Chip::sizeHint() const {
    const int text = fontMetrics().horizontalAdvance(this->text()) + 1;
    return {fixedWidth() + qMin(text, m_maximumTextWidth),
            qMax(kHeight, fontMetrics().height() + 10)};
}

QSize Chip::minimumSizeHint() const {
    const int least = fontMetrics().horizontalAdvance(QStringLiteral("mmmm\u2026"));
    const int text = fontMetrics().horizontalAdvance(this->text()) + 1;
    return {fixedWidth() + qMin(least, text), sizeHint().height()};
}

QRect Chip::removeRect() const {
    return {width() - kPad - kIcon + 4, (height() - kIcon) / 2, kIcon, kIcon};
}

void Chip::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    const QPalette& colors = palette();
    const bool over = isEnabled() && (underMouse() || isDown());
    const QRectF box = QRectF(rect()).adjusted(0.5, 0.5, -0.5, -0.5);
    painter.setPen(hasFocus() ? QPen(accent(colors), 2)
                              : QPen(m_outlined || over ? hairline(colors) : Qt::transparent));
    painter.setBrush(over         ? hovered(colors)
                     : m_outlined ? colors.color(QPalette::Base)
                                  : raised(colors));
    painter.drawRoundedRect(box, metrics::kRadius, metrics::kRadius);

    int x = kPad;
    if (m_dot.isValid()) {
        painter.setPen(Qt::NoPen);
        painter.setBrush(m_dot);
        painter.drawEllipse(QRectF(x, (height() - kDot) / 2.0, kDot, kDot));
        x += kDot + kGap;
    }
    if (!icon().isNull()) {
        icon().paint(&painter, QRect(x, (height() - kIcon) / 2, kIcon, kIcon), Qt::AlignCenter,
                     isEnabled() ? QIcon::Normal : QIcon::Disabled);
        x += kIcon + kGap;
    }
    const QFontMetrics metrics = fontMetrics();
    int right = width() - kPad;
    if (m_removable) right -= kIcon + kGap;
    if (!m_note.isEmpty()) {
        const int noteWidth = metrics.horizontalAdvance(m_note);
        painter.setPen(mutedText(colors));
        painter.drawText(QRect(right - noteWidth, 0, noteWidth + 1, height()), Qt::AlignVCenter,
                         m_note);
        right -= noteWidth + kGap;
    }
    painter.setPen(isEnabled() ? colors.color(QPalette::WindowText)
                               : colors.color(QPalette::Disabled, QPalette::WindowText));
    painter.drawText(QRect(x, 0, right - x + 1, height()), Qt::AlignVCenter,
                     metrics.elidedText(text(), Qt::ElideMiddle, right - x + 1));
    if (m_removable) {
        if (m_overRemove) {
            painter.setPen(Qt::NoPen);
            painter.setBrush(hairline(colors));
            painter.drawRoundedRect(removeRect().adjusted(-1, -1, 1, 1), 4, 4);
        }
        gui::icon(Glyph::close).paint(&painter, removeRect().adjusted(2, 2, -2, -2));
    }
}

bool Chip::event(QEvent* event) {
    switch (event->type()) {
        case QEvent::Enter:
        case QEvent::Leave:
            m_overRemove = false;
            update();
            break;
        default:
            break;
    }
    return QAbstractButton::event(event);
}

void Chip::mouseMoveEvent(QMouseEvent* event) {
    const bool over = m_removable && removeRect().contains(event->pos());
    if (over != m_overRemove) {
        m_overRemove = over;
        update();
    }
    QAbstractButton::mouseMoveEvent(event);
}

void Chip::mousePressEvent(QMouseEvent* event) {
    if (m_removable && removeRect().contains(event->pos())) {
        Q_EMIT removeClicked();
        return;
    }
    QAbstractButton::mousePressEvent(event);
}

void Chip::keyPressEvent(QKeyEvent* event) {
    if (m_removable && (event->key() == Qt::Key_Delete || event->key() == Qt::Key_Backspace)) {
        Q_EMIT removeClicked();
        return;
    }
    if (event->key() == Qt::Key_Return || event->key() == Qt::Key_Enter) {
        click();
        return;
    }
    QAbstractButton::keyPressEvent(event);
}

}  // namespace granary::gui

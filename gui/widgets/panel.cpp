// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/widgets/panel.h"

#include <QEvent>
#include <QHBoxLayout>
#include <QKeyEvent>
#include <QPainter>
#include <QPushButton>
#include <QStyleOption>

#include "gui/theme/contrast.h"
#include "gui/theme/metrics.h"
#include "gui/widgets/colors.h"

namespace granary::gui {

void Panel::setEditor(QWidget* editor) {
    m_editor = editor;
    editor->installEventFilter(this);
}

bool Panel::eventFilter(QObject* watched, QEvent* event) {
    if (event->type() == QEvent::FocusIn || event->type() == QEvent::FocusOut ||
        event->type() == QEvent::EnabledChange)
        update();
    return QWidget::eventFilter(watched, event);
}

void Panel::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    QStyleOptionFrame field;
    field.initFrom(this);
    field.lineWidth = 1;
    field.state.setFlag(QStyle::State_MouseOver, false);  // it is larger than what is written in
    if (m_editor) {
        field.state.setFlag(QStyle::State_Enabled, m_editor->isEnabled());
        field.state.setFlag(QStyle::State_HasFocus, m_editor->hasFocus());
    }
    style()->drawPrimitive(QStyle::PE_PanelLineEdit, &field, &painter, this);
}

QuietLabel::QuietLabel(const QString& text, QWidget* parent) : QLabel(text, parent) {
    setProperty("tone", QStringLiteral("muted"));
}

ElidedLabel::ElidedLabel(QWidget* parent) : QWidget(parent) {
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
}

void ElidedLabel::setText(const QString& text) {
    if (text == m_text) return;
    m_text = text;
    setToolTip(text);
    setAccessibleName(text);
    updateGeometry();
    update();
}

QSize ElidedLabel::sizeHint() const {
    return {fontMetrics().horizontalAdvance(m_text) + 1, fontMetrics().height()};
}

QSize ElidedLabel::minimumSizeHint() const {
    return {fontMetrics().horizontalAdvance(QStringLiteral("mm\u2026")), fontMetrics().height()};
}

void ElidedLabel::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.setPen(palette().color(foregroundRole()));
    painter.drawText(rect(), Qt::AlignVCenter | Qt::AlignLeft,
                     fontMetrics().elidedText(m_text, Qt::ElideRight, width()));
}

QToolButton* iconButton(Glyph glyph, const QString& name, QWidget* parent) {
    auto* button = new QToolButton(parent);
    button->setIcon(icon(glyph));
    button->setIconSize({16, 16});
    button->setFixedSize(28, 28);
    button->setAutoRaise(true);
    button->setToolTip(name);
    button->setAccessibleName(name);
    return button;
}

AccentButton::AccentButton(QWidget* parent) : QToolButton(parent) {
    setFocusPolicy(Qt::StrongFocus);
    setIconSize({16, 16});
}

QSize AccentButton::sizeHint() const {
    const int text = toolButtonStyle() == Qt::ToolButtonIconOnly
                         ? 0
                         : fontMetrics().horizontalAdvance(this->text());
    const int picture = icon().isNull() || toolButtonStyle() == Qt::ToolButtonTextOnly ? 0 : 16;
    const int gap = text && picture ? 8 : 0;
    return {qMax(32, text + picture + gap + (text ? 24 : 16)), 32};
}

// Qt's tool buttons know the space bar only.
void AccentButton::keyPressEvent(QKeyEvent* event) {
    if (event->key() == Qt::Key_Return || event->key() == Qt::Key_Enter)
        click();
    else
        QToolButton::keyPressEvent(event);
}

void AccentButton::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    QColor fill = accent(palette());
    if (!isEnabled())
        fill = hovered(palette());
    else if (isDown())
        fill = mixed(fill, palette().color(QPalette::WindowText), 0.2);
    else if (underMouse())
        fill = mixed(fill, palette().color(QPalette::WindowText), 0.1);
    painter.setBrush(fill);
    painter.setPen(hasFocus() ? QPen(palette().color(QPalette::WindowText), 2) : QPen(Qt::NoPen));
    painter.drawRoundedRect(QRectF(rect()).adjusted(1, 1, -1, -1), metrics::kRadius,
                            metrics::kRadius);
    const bool showText = toolButtonStyle() != Qt::ToolButtonIconOnly && !text().isEmpty();
    const bool showIcon = toolButtonStyle() != Qt::ToolButtonTextOnly && !icon().isNull();
    const int textWidth = showText ? fontMetrics().horizontalAdvance(text()) : 0;
    const int total = textWidth + (showIcon ? 16 : 0) + (showText && showIcon ? 8 : 0);
    int x = (width() - total) / 2;
    if (showIcon) {
        icon().paint(&painter, QRect(x, (height() - 16) / 2, 16, 16), Qt::AlignCenter,
                     isEnabled() ? QIcon::Normal : QIcon::Disabled);
        x += 24;
    }
    if (showText) {
        painter.setPen(isEnabled() ? palette().color(QPalette::HighlightedText)
                                   : mutedText(palette()));
        painter.drawText(QRect(x, 0, textWidth + 1, height()), Qt::AlignVCenter, text());
    }
}

ThinProgress::ThinProgress(QWidget* parent) : QProgressBar(parent) {
    setTextVisible(false);
    setFixedHeight(4);
}

void ThinProgress::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    painter.setPen(Qt::NoPen);
    painter.setBrush(hairline(palette()));
    painter.drawRoundedRect(QRectF(rect()), 2, 2);
    if (maximum() <= minimum()) return;
    const qreal share = qreal(value() - minimum()) / (maximum() - minimum());
    painter.setBrush(accent(palette()));
    painter.drawRoundedRect(QRectF(0, 0, width() * qBound(0.0, share, 1.0), height()), 2, 2);
}

QWidget* centredColumn(QWidget* content, int width, QWidget* parent) {
    auto* column = new QWidget(parent);
    auto* layout = new QHBoxLayout(column);
    layout->setContentsMargins(0, 0, 0, 0);
    layout->setSpacing(0);
    content->setMaximumWidth(width);
    layout->addStretch(1);
    layout->addWidget(content, 1000);
    layout->addStretch(1);
    return column;
}

}  // namespace granary::gui

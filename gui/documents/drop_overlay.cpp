// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/documents/drop_overlay.h"

#include <QPainter>

#include "gui/widgets/colors.h"

namespace granary::gui {

DropOverlay::DropOverlay(QWidget* parent) : QWidget(parent) {
    setAttribute(Qt::WA_TransparentForMouseEvents);
    setAccessibleName(tr("Drop area"));
    hide();
}

void DropOverlay::present(const QString& text) {
    m_text = text;
    setGeometry(parentWidget()->rect());
    raise();
    show();
    update();
}

void DropOverlay::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    QColor veil = palette().color(QPalette::Window);
    veil.setAlpha(225);
    painter.fillRect(rect(), veil);
    painter.setPen(QPen(accent(palette()), 2, Qt::DashLine));
    painter.drawRoundedRect(QRectF(rect()).adjusted(16, 16, -16, -16), 6, 6);
    QFont large = font();
    large.setPointSizeF(large.pointSizeF() * 1.4);
    painter.setFont(large);
    painter.setPen(palette().color(QPalette::WindowText));
    painter.drawText(rect().adjusted(48, 48, -48, -48), Qt::AlignCenter | Qt::TextWordWrap, m_text);
}

}  // namespace granary::gui

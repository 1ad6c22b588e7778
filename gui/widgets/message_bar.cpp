// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/widgets/message_bar.h"

#include <QAccessible>
#include <QHBoxLayout>
#include <QLabel>
#include <QPainter>
#include <QPushButton>
#include <QToolButton>

#include "gui/theme/contrast.h"
#include "gui/theme/theme.h"
#include "gui/widgets/flow_layout.h"
#include "gui/widgets/panel.h"

namespace granary::gui {

MessageBar::MessageBar(QWidget* parent) : QWidget(parent) {
    setAccessibleName(tr("Message"));
    setVisible(false);
    m_what = new QLabel;
    m_what->setWordWrap(true);
    m_what->setTextFormat(Qt::PlainText);
    m_what->setTextInteractionFlags(Qt::TextSelectableByMouse);
    QFont bold = m_what->font();
    bold.setWeight(QFont::DemiBold);
    m_what->setFont(bold);
    m_detail = new QLabel;
    m_detail->setWordWrap(true);
    m_detail->setTextFormat(Qt::PlainText);
    m_detail->setTextInteractionFlags(Qt::TextSelectableByMouse);
    m_buttons = new QWidget;
    m_buttonLayout = new FlowLayout(m_buttons);

    auto* text = new QVBoxLayout;
    text->setSpacing(4);
    text->addWidget(m_what);
    text->addWidget(m_detail);
    text->addWidget(m_buttons);
    auto* close = iconButton(Glyph::close, tr("Dismiss"));
    close->setObjectName(QStringLiteral("dismiss"));
    auto* layout = new QHBoxLayout(this);
    layout->setContentsMargins(16, 10, 8, 10);
    layout->addLayout(text, 1);
    layout->addWidget(close, 0, Qt::AlignTop);
    connect(close, &QToolButton::clicked, this, [this] {
        dismiss();
        Q_EMIT dismissed();
    });
}

void MessageBar::present(Kind kind, const QString& what, const QString& detail,
                         std::vector<Choice> choices) {
    m_kind = kind;
    m_open = true;
    m_what->setText(what);
    m_what->setAccessibleName(m_what->text());
    m_detail->setText(detail);
    m_detail->setVisible(!detail.isEmpty());
    while (QLayoutItem* item = m_buttonLayout->takeAt(0)) {
        item->widget()->hide();
        item->widget()->deleteLater();
        delete item;
    }
    m_buttons->setVisible(!choices.empty());
    for (Choice& choice : choices) {
        auto* button = new QPushButton(choice.text, m_buttons);
        button->setObjectName(choice.objectName);
        button->setAccessibleName(choice.text);
        button->setAutoDefault(choice.first);
        connect(button, &QPushButton::clicked, this,
                [this, act = std::move(choice.act), closes = choice.closes] {
                    if (closes) dismiss();
                    if (act) act();
                    if (closes) Q_EMIT dismissed();
                });
        m_buttonLayout->addWidget(button);
        button->show();
    }
    setVisible(true);
    updateGeometry();
    update();
    QAccessibleEvent event(this, QAccessible::Alert);
    QAccessible::updateAccessibility(&event);
}

void MessageBar::dismiss() {
    m_open = false;
    setVisible(false);
}

QString MessageBar::text() const {
    if (!m_open) return {};
    return m_detail->text().isEmpty() ? m_what->text()
                                      : m_what->text() + QStringLiteral(": ") + m_detail->text();
}

void MessageBar::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    const Tones& tones = Theme::tones(palette());
    QColor mark = tones.accent, back = tones.infoBack;
    if (m_kind == Kind::warning) mark = tones.warning, back = tones.warningBack;
    if (m_kind == Kind::error) mark = tones.danger, back = tones.dangerBack;
    painter.setPen(mixed(back, mark, 0.35));
    painter.setBrush(back);
    const QRectF box = QRectF(rect()).adjusted(0.5, 0.5, -0.5, -0.5);
    painter.drawRoundedRect(box, 5, 5);
    painter.setPen(Qt::NoPen);
    painter.setBrush(mark);
    painter.drawRoundedRect(QRectF(7, 11, 3, height() - 22.0), 1.5, 1.5);
}

}  // namespace granary::gui

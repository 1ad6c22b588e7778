// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/chat/find_bar.h"

#include <QHBoxLayout>
#include <QKeyEvent>
#include <QLineEdit>
#include <QLocale>
#include <QToolButton>

#include "gui/widgets/panel.h"

namespace granary::gui {

FindBar::FindBar(QWidget* parent) : QWidget(parent) {
    setObjectName(QStringLiteral("findBar"));
    setAccessibleName(tr("Find in this conversation"));
    m_edit = new QLineEdit;
    m_edit->setObjectName(QStringLiteral("findText"));
    m_edit->setAccessibleName(tr("Text to find"));
    m_edit->setPlaceholderText(tr("Find in this conversation"));
    m_edit->setFrame(false);
    auto* field = new Panel;
    field->setEditor(m_edit);
    auto* fieldLayout = new QHBoxLayout(field);
    fieldLayout->setContentsMargins(8, 4, 8, 4);
    fieldLayout->addWidget(m_edit);
    m_count = new QuietLabel;
    auto* previous = iconButton(Glyph::previous, tr("Previous"));
    auto* following = iconButton(Glyph::next, tr("Next"));
    auto* close = iconButton(Glyph::close, tr("Close find"));
    auto* layout = new QHBoxLayout(this);
    layout->setContentsMargins(24, 8, 24, 0);
    layout->setSpacing(4);
    layout->addWidget(field, 1);
    layout->addSpacing(4);
    layout->addWidget(m_count);
    layout->addWidget(previous);
    layout->addWidget(following);
    layout->addWidget(close);
    connect(m_edit, &QLineEdit::textChanged, this,
            [this](const QString& text) { Q_EMIT findRequested(text, false); });
    connect(previous, &QToolButton::clicked, this, [this] { next(true); });
    connect(following, &QToolButton::clicked, this, [this] { next(false); });
    connect(close, &QToolButton::clicked, this, &FindBar::close);
    hide();
}

void FindBar::open() {
    show();
    m_edit->setFocus(Qt::ShortcutFocusReason);
    m_edit->selectAll();
    if (!m_edit->text().isEmpty()) next(false);
}

void FindBar::close() {
    hide();
    Q_EMIT closed();
}

void FindBar::next(bool backwards) {
    Q_EMIT findRequested(m_edit->text(), backwards);
}

void FindBar::setHits(int hit, int count) {
    const QLocale locale;
    if (m_edit->text().isEmpty())
        m_count->clear();
    else if (count == 0)
        m_count->setText(tr("Nothing found"));
    else
        m_count->setText(tr("%1 of %2").arg(locale.toString(hit), locale.toString(count)));
}

void FindBar::keyPressEvent(QKeyEvent* event) {
    if (event->key() == Qt::Key_Escape) {
        close();
    } else if (event->key() == Qt::Key_Return || event->key() == Qt::Key_Enter) {
        next(event->modifiers() & Qt::ShiftModifier);
    } else {
        QWidget::keyPressEvent(event);
    }
}

}  // namespace granary::gui

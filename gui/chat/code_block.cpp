// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/chat/code_block.h"

#include <QClipboard>
#include <QFontDatabase>
#include <QGuiApplication>
#include <QHBoxLayout>
#include <QLabel>
#include <QPainter>
#include <QPlainTextEdit>
#include <QScrollBar>
#include <QTimer>
#include <QToolButton>
#include <QWheelEvent>

#include "gui/theme/metrics.h"
#include "gui/widgets/colors.h"
#include "gui/widgets/panel.h"

namespace granary::gui {

CodeBlock::CodeBlock(QWidget* parent) : QWidget(parent) {
    m_language = new QuietLabel;
    auto* copy = new QToolButton;
    copy->setObjectName(QStringLiteral("copyCode"));
    copy->setAutoRaise(true);
    copy->setIcon(icon(Glyph::copy));
    copy->setText(tr("Copy"));
    copy->setToolButtonStyle(Qt::ToolButtonTextBesideIcon);
    copy->setAccessibleName(tr("Copy this code"));
    connect(copy, &QToolButton::clicked, this, [this, copy] {
        QGuiApplication::clipboard()->setText(m_code);
        copy->setText(tr("Copied"));
        QTimer::singleShot(1500, copy, [copy] { copy->setText(tr("Copy")); });
    });

    m_editor = new QPlainTextEdit;
    m_editor->setReadOnly(true);
    m_editor->setFrameShape(QFrame::NoFrame);
    m_editor->setLineWrapMode(QPlainTextEdit::NoWrap);
    m_editor->setVerticalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    m_editor->setTabChangesFocus(true);
    m_editor->viewport()->setAutoFillBackground(false);
    m_editor->document()->setDocumentMargin(0);
    m_editor->setFont(QFontDatabase::systemFont(QFontDatabase::FixedFont));
    m_editor->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
    m_editor->viewport()->installEventFilter(this);

    auto* head = new QHBoxLayout;
    head->setContentsMargins(12, 2, 4, 2);
    head->addWidget(m_language, 1);
    head->addWidget(copy);
    auto* body = new QHBoxLayout;
    body->setContentsMargins(12, 6, 12, 8);
    body->addWidget(m_editor);
    auto* layout = new QVBoxLayout(this);
    layout->setContentsMargins(0, 0, 0, 0);
    layout->setSpacing(0);
    layout->addLayout(head);
    layout->addLayout(body);
}

void CodeBlock::setCode(const QString& language, const QString& code) {
    m_language->setText(language.isEmpty() ? tr("Code") : language);
    m_editor->setAccessibleName(language.isEmpty() ? tr("Code") : tr("Code, %1").arg(language));
    if (m_code == code && !code.isEmpty()) return;
    // Streaming code only grows: appending keeps the selection and costs no new layout.
    if (!m_code.isEmpty() && code.startsWith(m_code)) {
        QTextCursor end(m_editor->document());
        end.movePosition(QTextCursor::End);
        end.insertText(code.mid(m_code.size()));
    } else {
        m_editor->setPlainText(code);
    }
    m_code = code;
    fit();
}

void CodeBlock::fit() {
    const int lines = qMax(1, m_editor->document()->blockCount());
    const int line = QFontMetrics(m_editor->font()).lineSpacing();
    const int bar = m_editor->horizontalScrollBar()->maximum() > 0
                        ? qMax(12, m_editor->horizontalScrollBar()->sizeHint().height()) + 4
                        : 0;
    m_editor->setFixedHeight(lines * line + bar + 2);
}

bool CodeBlock::eventFilter(QObject* watched, QEvent* event) {
    if (event->type() == QEvent::Wheel) {
        const auto* wheel = static_cast<QWheelEvent*>(event);
        if (qAbs(wheel->angleDelta().y()) >= qAbs(wheel->angleDelta().x())) {
            event->ignore();  // up and down belong to the transcript
            return true;
        }
    }
    if (event->type() == QEvent::Resize) QTimer::singleShot(0, this, &CodeBlock::fit);
    return QWidget::eventFilter(watched, event);
}

void CodeBlock::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    painter.setPen(hairline(palette()));
    painter.setBrush(raised(palette()));
    painter.drawRoundedRect(QRectF(rect()).adjusted(0.5, 0.5, -0.5, -0.5), metrics::kRadius,
                            metrics::kRadius);
    painter.setRenderHint(QPainter::Antialiasing, false);
    const int y = m_editor->y() - 6;
    painter.drawLine(1, y, width() - 2, y);
}

}  // namespace granary::gui

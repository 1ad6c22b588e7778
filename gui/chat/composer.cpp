// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/chat/composer.h"

#include <QAction>
#include <QHBoxLayout>
#include <QKeyEvent>
#include <QMimeData>
#include <QTextBlock>
#include <QtMath>

namespace granary::gui {

namespace {
constexpr int kLeastLines = 2, kMostLines = 8;
constexpr int kInputMargin = 2;
constexpr qsizetype kLongPaste = 6000;  // characters
}  // namespace

InputEdit::InputEdit(QWidget* parent) : QPlainTextEdit(parent) {
    setObjectName(QStringLiteral("input"));
    setAccessibleName(tr("Your message"));
    setFrameShape(QFrame::NoFrame);
    setTabChangesFocus(true);
    setVerticalScrollBarPolicy(Qt::ScrollBarAsNeeded);
    viewport()->setAutoFillBackground(false);
    document()->setDocumentMargin(0);
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Preferred);
    connect(document(), &QTextDocument::contentsChanged, this, &InputEdit::fit);
    fit();
}

void InputEdit::fit() {
    int lines = 0;
    for (QTextBlock block = document()->begin(); block.isValid() && lines < kMostLines;
         block = block.next()) {
        lines += qMax(1, block.layout()->lineCount());
    }
    const int wanted = qBound(kLeastLines, lines, kMostLines);
    if (wanted == m_lines && minimumHeight() > 0) return;
    m_lines = wanted;
    // In a low window it gives way, down to its fewest lines.
    setMinimumHeight(heightOf(kLeastLines));
    setMaximumHeight(heightOf(m_lines));
    updateGeometry();
}

int InputEdit::heightOf(int lines) const {
    return lines * fontMetrics().lineSpacing() + 2 * kInputMargin;
}

QSize InputEdit::sizeHint() const {
    return {QPlainTextEdit::sizeHint().width(), heightOf(m_lines)};
}

// Whole lines only: no sliver of the next one shows.
void InputEdit::setMargins() {
    const int rest = (height() - 2 * kInputMargin) % fontMetrics().lineSpacing();
    setViewportMargins(kInputMargin, kInputMargin, kInputMargin, kInputMargin + qMax(0, rest));
}

void InputEdit::keyPressEvent(QKeyEvent* event) {
    const bool enter = event->key() == Qt::Key_Return || event->key() == Qt::Key_Enter;
    if (enter && !(event->modifiers() & (Qt::ShiftModifier | Qt::AltModifier))) {
        Q_EMIT submitted();
        return;
    }
    QPlainTextEdit::keyPressEvent(event);
}

bool InputEdit::canInsertFromMimeData(const QMimeData* source) const {
    // Files are taken by the window, which says where they go.
    return !source->hasUrls() && QPlainTextEdit::canInsertFromMimeData(source);
}

void InputEdit::insertFromMimeData(const QMimeData* source) {
    if (source->text().size() > kLongPaste) {
        Q_EMIT longPaste(source->text());
        return;
    }
    QPlainTextEdit::insertFromMimeData(source);
}

void InputEdit::resizeEvent(QResizeEvent* event) {
    QPlainTextEdit::resizeEvent(event);
    setMargins();
    fit();
}

void InputEdit::changeEvent(QEvent* event) {
    QPlainTextEdit::changeEvent(event);
    if (event->type() != QEvent::FontChange) return;
    m_lines = 0;
    fit();
}

Composer::Composer(QAction* attach, QAction* options, QAction* send, QAction* stop, QWidget* parent)
    : Panel(parent) {
    m_input = new InputEdit;
    setEditor(m_input);
    connect(m_input, &InputEdit::submitted, this, &Composer::submitted);
    connect(m_input, &InputEdit::longPaste, this, &Composer::longPaste);
    connect(m_input, &QPlainTextEdit::textChanged, this, &Composer::edited);

    const auto flat = [this](QAction* action) {
        auto* button = new QToolButton(this);
        button->setDefaultAction(action);
        button->setAutoRaise(true);
        button->setIconSize({16, 16});
        button->setFixedSize(32, 32);
        button->setAccessibleName(action->text());
        return button;
    };
    const auto filled = [this](QAction* action) {
        auto* button = new AccentButton(this);
        button->setDefaultAction(action);
        button->setToolButtonStyle(Qt::ToolButtonTextBesideIcon);
        button->setAccessibleName(action->text());
        return button;
    };
    m_hint = new QuietLabel;
    m_send = filled(send);
    m_stop = filled(stop);
    m_stop->hide();

    auto* row = new QHBoxLayout;
    row->setSpacing(4);
    row->addWidget(flat(attach));
    row->addWidget(flat(options));
    row->addSpacing(4);
    row->addWidget(m_hint, 1);
    row->addWidget(m_send);
    row->addWidget(m_stop);
    auto* layout = new QVBoxLayout(this);
    layout->setContentsMargins(8, 8, 8, 8);
    layout->setSpacing(4);
    layout->addWidget(m_input);
    layout->addLayout(row);
}

QString Composer::text() const {
    return m_input->toPlainText();
}

void Composer::setText(const QString& text) {
    m_input->setPlainText(text);
    m_input->moveCursor(QTextCursor::End);
}

void Composer::setHint(const QString& hint) {
    m_hint->setText(hint);
}

void Composer::setAnswering(bool answering) {
    m_send->setVisible(!answering);
    m_stop->setVisible(answering);
}

}  // namespace granary::gui

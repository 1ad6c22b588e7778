// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/chat/text_block.h"

#include <QContextMenuEvent>
#include <QMenu>
#include <QScrollBar>
#include <QWheelEvent>
#include <QtMath>

namespace granary::gui {

TextBlock::TextBlock(QWidget* parent) : QTextBrowser(parent) {
    setFrameShape(QFrame::NoFrame);
    setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    setVerticalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    setOpenLinks(false);
    setTabChangesFocus(true);
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
    viewport()->setAutoFillBackground(false);
    viewport()->setCursor(Qt::IBeamCursor);
    setContentsMargins(0, 0, 0, 0);
    setViewportMargins(0, 0, 0, 0);
    connect(this, &QTextBrowser::anchorClicked, this, &TextBlock::linkActivated);
    connect(this, &QTextBrowser::highlighted, this, &TextBlock::linkHovered);
}

TextBlock::~TextBlock() {
    QTextBrowser::setDocument(nullptr);  // before m_document goes
}

void TextBlock::setDocument(std::unique_ptr<QTextDocument> document) {
    document->setTextWidth(viewport()->width());
    QTextBrowser::setDocument(document.get());
    m_document = std::move(document);
    fit();
}

int TextBlock::naturalWidth(int limit) const {
    if (!m_document) return 0;
    return qMin(limit, qCeil(m_document->idealWidth()) + 2);
}

QSize TextBlock::sizeHint() const {
    return {width(), heightForWidth(width())};
}

QSize TextBlock::minimumSizeHint() const {
    return {40, fontMetrics().height()};
}

int TextBlock::heightForWidth(int width) const {
    if (!m_document) return fontMetrics().height();
    if (qFuzzyCompare(m_document->textWidth(), static_cast<qreal>(width))) {
        return qCeil(m_document->size().height());
    }
    m_document->setTextWidth(width);
    return qCeil(m_document->size().height());
}

void TextBlock::fit() {
    if (!m_document) return;
    const int height = heightForWidth(viewport()->width());
    if (height != this->height()) setFixedHeight(height);
}

void TextBlock::wheelEvent(QWheelEvent* event) {
    event->ignore();
}

void TextBlock::resizeEvent(QResizeEvent* event) {
    QTextBrowser::resizeEvent(event);
    fit();
}

void TextBlock::contextMenuEvent(QContextMenuEvent* event) {
    QMenu menu;
    QAction* copy = menu.addAction(tr("Copy"), this, &QTextEdit::copy);
    copy->setEnabled(textCursor().hasSelection());
    menu.addAction(tr("Select all"), this, &QTextEdit::selectAll);
    menu.exec(event->globalPos());
}

}  // namespace granary::gui

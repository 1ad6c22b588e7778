// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/chat/transcript.h"

#include <QPlainTextEdit>
#include <QScrollBar>
#include <QTextCursor>
#include <QToolButton>
#include <QVBoxLayout>

#include "gui/chat/code_block.h"
#include "gui/chat/message_view.h"
#include "gui/chat/text_block.h"
#include "gui/widgets/colors.h"
#include "gui/widgets/panel.h"

namespace granary::gui {

namespace {

QTextDocument* documentOf(QWidget* block) {
    if (auto* text = qobject_cast<TextBlock*>(block)) return text->document();
    if (auto* code = qobject_cast<CodeBlock*>(block)) return code->editor()->document();
    return nullptr;
}

}  // namespace

Transcript::Transcript(QWidget* parent) : QScrollArea(parent) {
    setObjectName(QStringLiteral("transcript"));
    setAccessibleName(tr("Conversation"));
    setFrameShape(QFrame::NoFrame);
    setWidgetResizable(true);
    setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    setFocusPolicy(Qt::StrongFocus);

    auto* column = new QWidget;
    m_column = new QVBoxLayout(column);
    m_column->setContentsMargins(24, 24, 24, 24);
    m_column->setSpacing(24);
    m_more = new QToolButton;
    m_more->setAutoRaise(true);
    m_more->setText(tr("Show earlier messages"));
    m_more->setAccessibleName(m_more->text());
    m_more->hide();
    connect(m_more, &QToolButton::clicked, this, &Transcript::showEarlier);
    m_column->addWidget(m_more, 0, Qt::AlignHCenter);
    m_column->addStretch(1);
    QWidget* centred = centredColumn(column, kColumnWidth + 48);
    setWidget(centred);
    viewport()->setBackgroundRole(QPalette::Base);
    centred->setAutoFillBackground(false);

    m_jump = iconButton(Glyph::next, tr("Go to the newest text"), this);
    m_jump->setAutoRaise(false);
    m_jump->hide();
    connect(m_jump, &QToolButton::clicked, this, &Transcript::scrollToEnd);

    connect(verticalScrollBar(), &QScrollBar::rangeChanged, this, [this](int, int maximum) {
        // The column keeps its place whether the bar is there or not.
        const int bar = maximum > 0 ? verticalScrollBar()->sizeHint().width() : 0;
        m_column->setContentsMargins(24, 24, qMax(0, 24 - bar), 24);
        if (m_follow) verticalScrollBar()->setValue(maximum);
        m_jump->setVisible(!atEnd());
    });
    connect(verticalScrollBar(), &QScrollBar::valueChanged, this, [this] {
        m_follow = atEnd();
        m_jump->setVisible(!m_follow);
        placeJump();
    });
}

bool Transcript::atEnd() const {
    return verticalScrollBar()->value() >= verticalScrollBar()->maximum() - 24;
}

void Transcript::scrollToEnd() {
    m_follow = true;
    verticalScrollBar()->setValue(verticalScrollBar()->maximum());
}

MessageView* Transcript::makeView(const ChatMessage& message, int at) {
    auto* view = new MessageView(message);
    connect(view, &MessageView::editRequested, this, &Transcript::editRequested);
    connect(view, &MessageView::regenerateRequested, this, &Transcript::regenerateRequested);
    connect(view, &MessageView::continueRequested, this, &Transcript::continueRequested);
    connect(view, &MessageView::replayRequested, this, &Transcript::replayRequested);
    connect(view, &MessageView::linkActivated, this, &Transcript::linkActivated);
    connect(view, &MessageView::linkHovered, this, &Transcript::linkHovered);
    m_views.insert(m_views.begin() + at, view);
    m_column->insertWidget(1 + at, view);
    return view;
}

void Transcript::setMessages(const QVector<ChatMessage>& messages) {
    clearFind();
    for (MessageView* view : m_views) {
        m_column->removeWidget(view);
        view->hide();
        view->deleteLater();
    }
    m_views.clear();
    m_hidden = qMax(0, static_cast<int>(messages.size()) - kShown);
    m_earlier = messages.mid(0, m_hidden);
    m_more->setVisible(m_hidden > 0);
    for (qsizetype i = m_hidden; i < messages.size(); ++i) {
        makeView(messages[i], static_cast<int>(m_views.size()));
    }
    markLast();
    scrollToEnd();
}

void Transcript::showEarlier() {
    const int from = qMax(0, m_hidden - kShown);
    const int fromEnd = verticalScrollBar()->maximum() - verticalScrollBar()->value();
    for (int i = m_hidden - 1; i >= from; --i) makeView(m_earlier[i], 0);
    m_earlier.resize(from);
    m_hidden = from;
    m_more->setVisible(m_hidden > 0);
    m_follow = false;
    widget()->layout()->activate();
    verticalScrollBar()->setValue(verticalScrollBar()->maximum() - fromEnd);
}

MessageView* Transcript::append(const ChatMessage& message) {
    MessageView* view = makeView(message, static_cast<int>(m_views.size()));
    markLast();
    return view;
}

void Transcript::removeFrom(int index) {
    clearFind();
    while (count() > index && !m_views.empty()) {
        MessageView* view = m_views.back();
        m_views.pop_back();
        m_column->removeWidget(view);
        view->hide();
        view->deleteLater();
    }
    markLast();
}

void Transcript::setBusy(bool busy) {
    m_busy = busy;
    markLast();
}

void Transcript::markLast() {
    const MessageView* lastQuestion = nullptr;
    for (const MessageView* view : m_views) {
        if (view->role() == Role::user) lastQuestion = view;
    }
    for (MessageView* view : m_views) {
        view->setLast(view == m_views.back() || view == lastQuestion, m_busy);
    }
}

void Transcript::placeJump() {
    m_jump->move(width() / 2 - m_jump->width() / 2, height() - m_jump->height() - 12);
    m_jump->raise();
}

void Transcript::resizeEvent(QResizeEvent* event) {
    const bool follow = m_follow;
    QScrollArea::resizeEvent(event);
    if (follow) scrollToEnd();
    placeJump();
}

std::pair<int, int> Transcript::find(const QString& text, bool backwards) {
    if (text.isEmpty()) {
        clearFind();
        return {0, 0};
    }
    while (m_hidden > 0) showEarlier();
    // Text may have grown since the last search: hits are gathered again, the place is kept.
    const int previous = text == m_needle ? m_hit : -1;
    m_needle = text;
    m_hits.clear();
    for (const MessageView* view : m_views) {
        for (QWidget* block : view->blocks()) {
            QTextDocument* document = documentOf(block);
            for (QTextCursor at = document->find(text); !at.isNull();
                 at = document->find(text, at)) {
                m_hits.push_back(
                    {block, at.selectionStart(), at.selectionEnd() - at.selectionStart()});
            }
        }
    }
    const int count = static_cast<int>(m_hits.size());
    if (count == 0) {
        m_hit = -1;
        return {0, 0};
    }
    if (previous < 0)
        m_hit = backwards ? count - 1 : 0;
    else
        m_hit = (previous + (backwards ? count - 1 : 1)) % count;
    showHit();
    return {m_hit + 1, count};
}

void Transcript::showHit() {
    const Hit& hit = m_hits[static_cast<size_t>(m_hit)];
    m_follow = false;
    QTextCursor cursor(documentOf(hit.block));
    cursor.setPosition(hit.position);
    cursor.setPosition(hit.position + hit.length, QTextCursor::KeepAnchor);
    QRect place;
    const auto select = [&](auto* editor) {
        editor->setTextCursor(cursor);
        QTextEdit::ExtraSelection mark;
        mark.cursor = cursor;
        mark.format.setBackground(accent(palette()));
        mark.format.setForeground(palette().color(QPalette::HighlightedText));
        editor->setExtraSelections({mark});
        place = editor->cursorRect(cursor);
    };
    for (const Hit& other : m_hits) {
        if (other.block == hit.block) continue;
        if (auto* text = qobject_cast<TextBlock*>(other.block)) text->setExtraSelections({});
        if (auto* code = qobject_cast<CodeBlock*>(other.block)) {
            code->editor()->setExtraSelections({});
        }
    }
    if (auto* text = qobject_cast<TextBlock*>(hit.block)) select(text);
    if (auto* code = qobject_cast<CodeBlock*>(hit.block)) select(code->editor());
    const QPoint at = hit.block->mapTo(widget(), place.center());
    ensureVisible(at.x(), at.y(), 40, 120);
}

void Transcript::clearFind() {
    for (const Hit& hit : m_hits) {
        if (auto* text = qobject_cast<TextBlock*>(hit.block)) text->setExtraSelections({});
        if (auto* code = qobject_cast<CodeBlock*>(hit.block)) {
            code->editor()->setExtraSelections({});
        }
    }
    m_hits.clear();
    m_hit = -1;
    m_needle.clear();
}

}  // namespace granary::gui

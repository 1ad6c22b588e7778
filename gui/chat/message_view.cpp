// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/chat/message_view.h"

#include <QClipboard>
#include <QEvent>
#include <QGuiApplication>
#include <QHBoxLayout>
#include <QLabel>
#include <QLocale>
#include <QPainter>
#include <QToolButton>
#include <algorithm>

#include "gui/chat/code_block.h"
#include "gui/chat/markdown.h"
#include "gui/chat/text_block.h"
#include "gui/engine/engine_types.h"
#include "gui/theme/metrics.h"
#include "gui/widgets/chip.h"
#include "gui/widgets/colors.h"
#include "gui/widgets/flow_layout.h"
#include "gui/widgets/panel.h"

namespace granary::gui {

namespace {

constexpr int kRedrawMs = 40;  // at most 25 times a second
constexpr int kBubblePad = 12;

QString endingText(Ending ending) {
    switch (ending) {
        case Ending::stopped:
            return MessageView::tr("Stopped by you");
        case Ending::contextFull:
            return MessageView::tr("Context full");
        case Ending::tokenLimit:
            return MessageView::tr("Token limit reached");
        case Ending::interrupted:
            return MessageView::tr("Interrupted: the program ended here");
        case Ending::failed:
            return MessageView::tr("The request failed here");
        case Ending::none:
        case Ending::answered:
            break;
    }
    return {};
}

}  // namespace

MessageView::MessageView(const ChatMessage& message, QWidget* parent)
    : QWidget(parent), m_message(message) {
    const bool answer = message.role == Role::assistant;
    setSizePolicy(QSizePolicy::Preferred, QSizePolicy::Preferred);  // as high as its width needs
    setAccessibleName(answer ? tr("Answer") : tr("Question"));

    m_redraw.setSingleShot(true);
    connect(&m_redraw, &QTimer::timeout, this, [this] { render(false); });

    m_bubble = new QWidget;
    m_content = new QVBoxLayout(m_bubble);
    m_content->setSpacing(8);
    m_content->setContentsMargins(answer ? QMargins() : QMargins(kBubblePad, 8, kBubblePad, 8));

    auto* footer = new QHBoxLayout;
    footer->setSpacing(2);
    footer->setContentsMargins(0, 0, 0, 0);
    m_copy = iconButton(Glyph::copy, answer ? tr("Copy this answer") : tr("Copy this question"));
    m_copy->setObjectName(QStringLiteral("copyMessage"));
    connect(m_copy, &QToolButton::clicked, this,
            [this] { QGuiApplication::clipboard()->setText(m_message.text); });

    auto* layout = new QVBoxLayout(this);
    layout->setContentsMargins(0, 0, 0, 0);
    layout->setSpacing(4);
    if (answer) {
        m_reading = new QWidget;
        auto* reading = new QVBoxLayout(m_reading);
        reading->setContentsMargins(0, 4, 0, 4);
        reading->setSpacing(6);
        m_progressText = new QuietLabel;
        m_progress = new ThinProgress;
        m_progress->setMaximumWidth(420);
        m_progress->setAccessibleName(tr("Reading progress"));
        reading->addWidget(m_progressText);
        reading->addWidget(m_progress);
        m_reading->hide();
        m_ending = new QuietLabel;
        m_note = new QuietLabel;
        m_note->setWordWrap(true);
        m_note->setFont(metrics::small(font()));
        m_ending->setFont(metrics::small(font()));
        m_note->setTextInteractionFlags(Qt::TextSelectableByMouse);
        m_replay = new QToolButton;
        m_replay->setObjectName(QStringLiteral("replay"));
        m_replay->setAutoRaise(true);
        m_replay->setText(tr("Replay slowly"));
        m_replay->setToolTip(tr("Shows on the map what memory did, at a tenth of the speed"));
        m_replay->setAccessibleName(m_replay->text());
        m_replay->setIcon(icon(Glyph::play));
        m_replay->setIconSize({12, 12});
        m_replay->setFixedHeight(28);
        m_replay->setToolButtonStyle(Qt::ToolButtonTextBesideIcon);
        m_again = iconButton(Glyph::refresh, tr("Answer again"));
        m_again->setObjectName(QStringLiteral("regenerate"));
        m_continue = new QToolButton;
        m_continue->setObjectName(QStringLiteral("continueAnswer"));
        m_continue->setAutoRaise(true);
        m_continue->setText(tr("Continue"));
        m_continue->setAccessibleName(tr("Continue this answer"));
        m_continue->setIcon(icon(Glyph::forward));
        m_continue->setIconSize({12, 12});
        m_continue->setFixedHeight(28);
        m_continue->setToolButtonStyle(Qt::ToolButtonTextBesideIcon);
        connect(m_again, &QToolButton::clicked, this, &MessageView::regenerateRequested);
        connect(m_continue, &QToolButton::clicked, this, &MessageView::continueRequested);
        connect(m_replay, &QToolButton::clicked, this, &MessageView::replayRequested);
        layout->addWidget(m_bubble);
        layout->addWidget(m_reading);
        // What memory did at the left, what can be done at the right, in one quiet row.
        auto* notes = new QVBoxLayout;
        notes->setSpacing(2);
        notes->setContentsMargins(0, 6, 0, 0);
        notes->addWidget(m_ending);
        notes->addWidget(m_note);
        notes->addStretch(1);
        footer->addLayout(notes, 1);
        for (QWidget* button : {static_cast<QWidget*>(m_continue), static_cast<QWidget*>(m_replay),
                                static_cast<QWidget*>(m_again), static_cast<QWidget*>(m_copy)}) {
            footer->addWidget(button, 0, Qt::AlignTop);
        }
        layout->addLayout(footer);
    } else {
        m_edit = iconButton(Glyph::edit, tr("Edit this question"));
        m_edit->setObjectName(QStringLiteral("editQuestion"));
        connect(m_edit, &QToolButton::clicked, this, &MessageView::editRequested);
        auto* row = new QHBoxLayout;
        row->setContentsMargins(0, 0, 0, 0);
        row->addStretch(1);
        footer->addWidget(m_edit);
        footer->addWidget(m_copy);
        row->addLayout(footer);
        row->addWidget(m_bubble);
        row->setAlignment(footer, Qt::AlignBottom);
        layout->addLayout(row);
    }
    render(true);
    updateFooter();
}

TextBlock* MessageView::newTextBlock() {
    auto* block = new TextBlock;
    block->setAccessibleName(m_message.role == Role::assistant ? tr("Answer text")
                                                               : tr("Question text"));
    connect(block, &TextBlock::linkActivated, this, &MessageView::linkActivated);
    connect(block, &TextBlock::linkHovered, this, &MessageView::linkHovered);
    return block;
}

void MessageView::setText(const QString& text, bool streaming) {
    const bool first = m_message.text.isEmpty();
    m_message.text = text;
    m_streaming = streaming;
    if (!streaming || first) {
        m_redraw.stop();
        render(false);
        updateFooter();
    } else if (!m_redraw.isActive()) {
        m_redraw.start(kRedrawMs);
    }
}

void MessageView::setMessage(const ChatMessage& message) {
    m_message = message;
    setText(message.text, false);
    updateFooter();
}

void MessageView::setProgress(quint32 done, quint32 total, double etaSeconds) {
    if (!m_reading) return;
    m_reading->setVisible(total > 0);
    if (total == 0) return;
    const QLocale locale;
    m_progress->setRange(0, static_cast<int>(qMin<quint32>(total, INT_MAX)));
    m_progress->setValue(static_cast<int>(qMin<quint32>(done, INT_MAX)));
    QString text = tr("Reading %1 of %2 tokens").arg(locale.toString(done), locale.toString(total));
    if (etaSeconds > 0.05) text = tr("%1, %2 left").arg(text, durationText(etaSeconds));
    m_progressText->setText(text);
}

void MessageView::setLast(bool last, bool busy) {
    if (last == m_last && busy == m_busy) return;
    m_last = last;
    m_busy = busy;
    updateFooter();
}

void MessageView::updateFooter() {
    if (m_edit) {
        m_edit->setVisible(m_last && !m_busy);
        return;
    }
    const bool done = !m_streaming && m_message.ending != Ending::none;
    m_copy->setVisible(!m_message.text.isEmpty());
    m_again->setVisible(m_last && done && !m_busy);
    m_continue->setVisible(m_last && done && !m_busy && m_message.ending != Ending::answered &&
                           m_message.ending != Ending::contextFull);
    m_ending->setText(endingText(m_message.ending));
    m_ending->setVisible(!m_ending->text().isEmpty());
    QStringList notes;
    if (!m_message.keptLine.isEmpty()) notes << m_message.keptLine;
    if (!m_message.memoryLine.isEmpty()) notes << m_message.memoryLine;
    m_note->setText(notes.join(QLatin1Char('\n')));
    m_note->setVisible(!notes.isEmpty());
    m_replay->setVisible(m_last && m_message.live && !m_message.memoryLine.isEmpty());
}

void MessageView::renderQuestion() {
    while (QLayoutItem* item = m_content->takeAt(0)) {
        if (item->widget()) item->widget()->deleteLater();
        delete item;
    }
    m_blocks.clear();
    if (!m_message.documents.isEmpty()) {
        auto* tray = new QWidget;
        auto* flow = new FlowLayout(tray);
        for (const Document& document : m_message.documents) {
            auto* chip = new Chip;
            chip->setIcon(icon(Glyph::document));
            chip->setText(document.label());
            if (document.tokens >= 0) {
                chip->setNote(tr("%1 tokens").arg(QLocale().toString(document.tokens)));
            }
            chip->setOutlined(true);
            chip->setFocusPolicy(Qt::NoFocus);
            chip->setAttribute(Qt::WA_TransparentForMouseEvents);
            chip->setAccessibleName(tr("Document %1").arg(document.label()));
            flow->addWidget(chip);
        }
        m_content->addWidget(tray);
    }
    TextBlock* block = newTextBlock();
    block->setDocument(renderPlain(m_message.text, font()));
    m_content->addWidget(block);
    m_blocks.push_back(block);
}

void MessageView::render(bool all) {
    if (m_message.role != Role::assistant) {
        renderQuestion();
        return;
    }
    const std::vector<MarkdownPart> parts = splitMarkdown(m_message.text);
    // A block whose kind changed (text that turned out to be code) is made anew.
    while (m_blocks.size() > parts.size()) {
        m_blocks.back()->deleteLater();
        m_blocks.pop_back();
        m_drawn.pop_back();
    }
    for (size_t i = 0; i < parts.size(); ++i) {
        const MarkdownPart& part = parts[i];
        const QString source =
            (part.code ? QStringLiteral("c") + part.language : QStringLiteral("t")) +
            QLatin1Char('\n') + part.text;
        QWidget* block = i < m_blocks.size() ? m_blocks[i] : nullptr;
        if (block && !all && m_drawn[i] == source) continue;
        if (block && (qobject_cast<CodeBlock*>(block) != nullptr) != part.code) {
            block->hide();
            block->deleteLater();
            block = nullptr;
        }
        if (!block) {
            block = part.code ? static_cast<QWidget*>(new CodeBlock) : newTextBlock();
            m_content->insertWidget(static_cast<int>(i), block);
            if (i < m_blocks.size()) {
                m_blocks[i] = block;
            } else {
                m_blocks.push_back(block);
                m_drawn.emplace_back();
            }
        }
        if (part.code) {
            static_cast<CodeBlock*>(block)->setCode(part.language, part.text);
        } else {
            static_cast<TextBlock*>(block)->setDocument(
                renderMarkdown(part.text, font(), palette()));
        }
        m_drawn[i] = source;
    }
}

void MessageView::resizeEvent(QResizeEvent* event) {
    QWidget::resizeEvent(event);
    if (m_message.role == Role::assistant || m_blocks.empty()) return;
    const int limit = qMax(160, width() * 4 / 5);
    auto* block = static_cast<TextBlock*>(m_blocks.front());
    const int text = [&] {
        const QFontMetrics metrics(font());
        int widest = 0;
        for (const QString& line : m_message.text.split(QLatin1Char('\n'))) {
            widest = qMax(widest, metrics.horizontalAdvance(line));
            if (widest > limit) break;
        }
        return widest + 4;
    }();
    int chips = 0;
    for (auto* chip : m_bubble->findChildren<Chip*>()) {
        chips = qMax(chips, chip->sizeHint().width());
    }
    const int inner = std::clamp(qMax(text, chips), 24, limit - 2 * kBubblePad);
    m_bubble->setFixedWidth(inner + 2 * kBubblePad);
    block->setFixedWidth(inner);
}

void MessageView::changeEvent(QEvent* event) {
    QWidget::changeEvent(event);
    // Code backgrounds and sizes are part of the laid-out document.
    if (event->type() == QEvent::PaletteChange || event->type() == QEvent::FontChange) {
        render(true);
    }
}

void MessageView::paintEvent(QPaintEvent*) {
    if (m_message.role == Role::assistant) return;
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    painter.setPen(Qt::NoPen);
    painter.setBrush(raised(palette()));
    painter.drawRoundedRect(QRectF(m_bubble->geometry()), metrics::kRadius, metrics::kRadius);
}

}  // namespace granary::gui

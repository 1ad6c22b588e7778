// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/chat/chat_pane.h"

#include <QAction>
#include <QPainter>
#include <QStackedWidget>
#include <QVBoxLayout>

#include "gui/chat/composer.h"
#include "gui/chat/empty_state.h"
#include "gui/chat/find_bar.h"
#include "gui/chat/options_sheet.h"
#include "gui/chat/transcript.h"
#include "gui/widgets/chip.h"
#include "gui/widgets/flow_layout.h"
#include "gui/widgets/message_bar.h"

namespace granary::gui {

ChatPane::ChatPane(const ChatActions& actions, QWidget* tray, QWidget* parent)
    : QWidget(parent), m_optionsAction(actions.options) {
    setObjectName(QStringLiteral("chat"));
    setAccessibleName(tr("Chat"));
    m_transcript = new Transcript;
    m_empty = new EmptyState;
    m_pages = new QStackedWidget;
    m_pages->addWidget(m_empty);
    m_pages->addWidget(m_transcript);
    m_find = new FindBar;
    m_bar = new MessageBar;
    m_bar->setObjectName(QStringLiteral("messageBar"));
    m_questions = new QWidget;
    m_questionLayout = new FlowLayout(m_questions);
    m_questions->hide();
    m_composer = new Composer(actions.attach, actions.options, actions.send, actions.stop);

    auto* lower = new QWidget;
    auto* lowerLayout = new QVBoxLayout(lower);
    lowerLayout->setContentsMargins(24, 8, 24, 16);
    lowerLayout->setSpacing(8);
    lowerLayout->addWidget(m_bar);
    lowerLayout->addWidget(m_questions);
    lowerLayout->addWidget(tray);
    lowerLayout->addWidget(m_composer);
    auto* layout = new QVBoxLayout(this);
    layout->setContentsMargins(0, 0, 0, 0);
    layout->setSpacing(0);
    layout->addWidget(centredColumn(m_find, kColumnWidth + 48));
    layout->addWidget(m_pages, 1);
    layout->addWidget(centredColumn(lower, kColumnWidth + 48));

    m_options = new OptionsSheet(this);
    m_options->hide();
    connect(actions.options, &QAction::toggled, this, &ChatPane::openOptions);
    connect(m_options, &OptionsSheet::closed, this, [this] {
        m_optionsAction->setChecked(false);
        m_composer->input()->setFocus();
    });
    connect(m_find, &FindBar::findRequested, this, [this](const QString& text, bool backwards) {
        const auto [hit, count] = m_transcript->find(text, backwards);
        m_find->setHits(hit, count);
    });
    connect(m_find, &FindBar::closed, this, [this] {
        m_transcript->clearFind();
        m_composer->input()->setFocus();
    });
}

void ChatPane::showTranscript(bool show) {
    m_pages->setCurrentWidget(show ? static_cast<QWidget*>(m_transcript) : m_empty);
}

void ChatPane::setQuestions(const QStringList& questions) {
    while (QLayoutItem* item = m_questionLayout->takeAt(0)) {
        item->widget()->hide();
        item->widget()->deleteLater();
        delete item;
    }
    int number = 0;
    for (const QString& question : questions) {
        auto* chip = new Chip(m_questions);
        chip->setObjectName(QStringLiteral("question%1").arg(++number));
        chip->setText(question);
        chip->setAccessibleName(tr("Ask: %1").arg(question));
        chip->setOutlined(true);
        connect(chip, &Chip::clicked, this, [this, question] { Q_EMIT questionChosen(question); });
        m_questionLayout->addWidget(chip);
        chip->show();
    }
    m_questions->setVisible(number > 0);
}

void ChatPane::showQuestions(bool show) {
    int left = 0;
    for (int i = 0; i < m_questionLayout->count(); ++i) {
        left += !m_questionLayout->itemAt(i)->widget()->isHidden();
    }
    m_questions->setVisible(show && left > 0);
}

void ChatPane::setQuestionsEnabled(bool enabled) {
    m_questions->setEnabled(enabled);
}

void ChatPane::hideQuestion(const QString& question) {
    for (int i = 0; i < m_questionLayout->count(); ++i) {
        auto* chip = static_cast<Chip*>(m_questionLayout->itemAt(i)->widget());
        if (chip->text() == question) chip->hide();
    }
    showQuestions(!m_questions->isHidden());
}

void ChatPane::openOptions(bool open) {
    m_options->setVisible(open);
    placeOptions();
}

void ChatPane::placeOptions() {
    constexpr int kLeastColumn = 340;  // narrower, the sheet lies over the column instead
    const bool beside = m_options->isVisible() && width() - OptionsSheet::kWidth >= kLeastColumn;
    layout()->setContentsMargins(0, 0, beside ? OptionsSheet::kWidth : 0, 0);
    m_options->setGeometry(width() - OptionsSheet::kWidth, 0, OptionsSheet::kWidth, height());
    m_options->raise();
}

void ChatPane::resizeEvent(QResizeEvent* event) {
    QWidget::resizeEvent(event);
    placeOptions();
}

void ChatPane::paintEvent(QPaintEvent*) {
    QPainter(this).fillRect(rect(), palette().color(QPalette::Base));
}

}  // namespace granary::gui

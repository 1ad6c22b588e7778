// SPDX-License-Identifier: GPL-3.0-or-later
// The centre of the window: transcript, message bar, questions, document tray and input.
#pragma once

#include <QWidget>

#include "gui/chat/chat_types.h"

class QAction;
class QStackedWidget;
class QVBoxLayout;

namespace granary::gui {

class Composer;
class EmptyState;
class FindBar;
class FlowLayout;
class MessageBar;
class OptionsSheet;
class Transcript;

struct ChatActions {
    QAction* attach;
    QAction* options;  // checkable
    QAction* send;
    QAction* stop;
};

class ChatPane : public QWidget {
    Q_OBJECT

  public:
    // `tray` shows the documents that go with the next question; it hides itself when empty.
    ChatPane(const ChatActions& actions, QWidget* tray, QWidget* parent = nullptr);

    Transcript* transcript() const { return m_transcript; }
    EmptyState* empty() const { return m_empty; }
    Composer* composer() const { return m_composer; }
    MessageBar* bar() const { return m_bar; }
    FindBar* findBar() const { return m_find; }
    OptionsSheet* options() const { return m_options; }

    void showTranscript(bool show);  // else the empty state
    // Buttons question1, question2, .. above the input; a name stays with its question.
    void setQuestions(const QStringList& questions);
    void showQuestions(bool show);
    void setQuestionsEnabled(bool enabled);
    void hideQuestion(const QString& question);
    void openOptions(bool open);

  Q_SIGNALS:
    void questionChosen(const QString& question);

  protected:
    void resizeEvent(QResizeEvent* event) override;
    void paintEvent(QPaintEvent* event) override;

  private:
    void placeOptions();

    QStackedWidget* m_pages;
    Transcript* m_transcript;
    EmptyState* m_empty;
    FindBar* m_find;
    MessageBar* m_bar;
    QWidget* m_questions;
    FlowLayout* m_questionLayout;
    Composer* m_composer;
    OptionsSheet* m_options;
    QAction* m_optionsAction;
};

}  // namespace granary::gui

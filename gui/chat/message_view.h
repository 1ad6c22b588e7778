// SPDX-License-Identifier: GPL-3.0-or-later
// One message of the transcript: a bubble for a question, the whole column for an answer, with
// the buttons that act on it.
#pragma once

#include <QElapsedTimer>
#include <QTimer>
#include <QWidget>
#include <vector>

#include "gui/chat/chat_types.h"

class QHBoxLayout;
class QLabel;
class QToolButton;
class QVBoxLayout;

namespace granary::gui {

class TextBlock;
class ThinProgress;

class MessageView : public QWidget {
    Q_OBJECT

  public:
    explicit MessageView(const ChatMessage& message, QWidget* parent = nullptr);

    Role role() const { return m_message.role; }
    const ChatMessage& message() const { return m_message; }

    // The answer so far. While `streaming`, drawing waits until it is affordable again; the last
    // part alone is laid out anew.
    void setText(const QString& text, bool streaming);
    void setMessage(const ChatMessage& message);
    // While the prompt is read; total 0 hides it.
    void setProgress(quint32 done, quint32 total, double etaSeconds);
    // Only the last question can be edited, only the last answer continued or made again.
    void setLast(bool last, bool busy);

    // Text blocks in order, for find; code blocks count as one.
    std::vector<QWidget*> blocks() const { return m_blocks; }

  Q_SIGNALS:
    void editRequested();
    void regenerateRequested();
    void continueRequested();
    void replayRequested();
    void linkActivated(const QUrl& link);
    void linkHovered(const QUrl& link);

  protected:
    void paintEvent(QPaintEvent* event) override;
    void resizeEvent(QResizeEvent* event) override;
    void changeEvent(QEvent* event) override;

  private:
    void render(bool all);
    void renderQuestion();
    void updateFooter();
    TextBlock* newTextBlock();

    ChatMessage m_message;
    bool m_streaming = false;
    bool m_last = false;
    bool m_busy = false;
    std::vector<QString> m_drawn;    // source of each block
    std::vector<QWidget*> m_blocks;  // TextBlock or CodeBlock
    QTimer m_redraw;
    QWidget* m_bubble = nullptr;
    QVBoxLayout* m_content = nullptr;
    QWidget* m_reading = nullptr;
    ThinProgress* m_progress = nullptr;
    QLabel* m_progressText = nullptr;
    QLabel* m_ending = nullptr;
    QLabel* m_note = nullptr;
    QToolButton* m_replay = nullptr;
    QToolButton* m_copy = nullptr;
    QToolButton* m_edit = nullptr;
    QToolButton* m_again = nullptr;
    QToolButton* m_continue = nullptr;
};

}  // namespace granary::gui

// SPDX-License-Identifier: GPL-3.0-or-later
// The messages of one chat, in a column of at most 900 pixels. It follows the answer only while
// the reader is at its end.
#pragma once

#include <QScrollArea>
#include <vector>

#include "gui/chat/chat_types.h"

class QToolButton;
class QVBoxLayout;

namespace granary::gui {

class MessageView;

class Transcript : public QScrollArea {
    Q_OBJECT

  public:
    explicit Transcript(QWidget* parent = nullptr);

    void setMessages(const QVector<ChatMessage>& messages);
    MessageView* append(const ChatMessage& message);
    void removeFrom(int index);
    int count() const { return m_hidden + static_cast<int>(m_views.size()); }
    MessageView* last() const { return m_views.empty() ? nullptr : m_views.back(); }
    const std::vector<MessageView*>& views() const { return m_views; }
    void setBusy(bool busy);

    void scrollToEnd();
    bool atEnd() const;

    // Finds in text and code, from the current hit on; wraps. Returns hit number and count, both
    // 0 where there is none.
    std::pair<int, int> find(const QString& text, bool backwards);
    void clearFind();

  Q_SIGNALS:
    void editRequested();
    void regenerateRequested();
    void continueRequested();
    void replayRequested();
    void linkActivated(const QUrl& link);
    void linkHovered(const QUrl& link);

  protected:
    void resizeEvent(QResizeEvent* event) override;

  private:
    struct Hit {
        QWidget* block;
        int position;
        int length;
    };
    void showHit();
    MessageView* makeView(const ChatMessage& message, int at);
    void showEarlier();
    void markLast();
    void placeJump();

    static constexpr int kShown = 60;  // a long chat opens with its newest messages

    QVector<ChatMessage> m_earlier;  // not shown yet
    int m_hidden = 0;
    std::vector<MessageView*> m_views;
    QVBoxLayout* m_column;
    QToolButton* m_more;
    QToolButton* m_jump;
    bool m_follow = true;
    bool m_busy = false;
    QString m_needle;
    std::vector<Hit> m_hits;
    int m_hit = -1;
};

}  // namespace granary::gui

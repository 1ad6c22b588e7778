// SPDX-License-Identifier: GPL-3.0-or-later
// The left dock: new chat, the last chats, rename, delete with undo.
#pragma once

#include <QWidget>

#include "gui/library/chat_list_model.h"

class QAction;
class QLabel;
class QListView;
class QTimer;

namespace granary::gui {

class ChatsPanel : public QWidget {
    Q_OBJECT

  public:
    ChatsPanel(QAction* newChat, QWidget* parent = nullptr);

    ChatListModel* model() const { return m_model; }
    void setCurrent(qint64 chat);  // 0: none
    void setLocked(bool locked);   // while an answer runs the chat cannot change

  Q_SIGNALS:
    void chosen(qint64 chat);
    void renamed(qint64 chat, const QString& title);
    void deleted(qint64 chat);
    void restored(qint64 chat);

  protected:
    bool eventFilter(QObject* watched, QEvent* event) override;

  private:
    void remove(const QModelIndex& index);
    void undo();

    static constexpr int kUndoMs = 12000;

    ChatListModel* m_model;
    QListView* m_list;
    QLabel* m_nothing;
    QWidget* m_undoBar;
    QLabel* m_undoText;
    QTimer* m_undoTimer;
    ChatSummary m_removed;
    bool m_locked = false;
};

}  // namespace granary::gui

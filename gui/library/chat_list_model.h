// SPDX-License-Identifier: GPL-3.0-or-later
// The chats of the library, changed last first.
#pragma once

#include <QAbstractListModel>
#include <QVector>

#include "gui/chat/chat_types.h"

namespace granary::gui {

class ChatListModel : public QAbstractListModel {
    Q_OBJECT

  public:
    enum { IdRole = Qt::UserRole, ChangedRole };

    using QAbstractListModel::QAbstractListModel;

    void setChats(const QVector<ChatSummary>& chats);
    const QVector<ChatSummary>& chats() const { return m_chats; }
    QModelIndex indexOf(qint64 chat) const;
    void touch(qint64 chat, const QString& title, qint64 changed);  // adds or moves to the top
    ChatSummary take(qint64 chat);

    int rowCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role) const override;
    bool setData(const QModelIndex& index, const QVariant& value, int role) override;
    Qt::ItemFlags flags(const QModelIndex& index) const override;

  Q_SIGNALS:
    void renamed(qint64 chat, const QString& title);

  private:
    QVector<ChatSummary> m_chats;
};

// "14:05" today, "Tue" this week, else the short date.
QString whenText(qint64 milliseconds);

}  // namespace granary::gui

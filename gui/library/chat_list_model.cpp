// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/library/chat_list_model.h"

#include <QDateTime>
#include <QLocale>

namespace granary::gui {

QString whenText(qint64 milliseconds) {
    const QDateTime when = QDateTime::fromMSecsSinceEpoch(milliseconds);
    const QDate today = QDate::currentDate();
    const QLocale locale;
    if (when.date() == today) {
        // The C locale's short form has seconds, which nobody looks for here.
        return locale.language() == QLocale::C ? when.time().toString(QStringLiteral("HH:mm"))
                                               : locale.toString(when.time(), QLocale::ShortFormat);
    }
    if (when.date().daysTo(today) < 7) {
        return locale.dayName(when.date().dayOfWeek(), QLocale::ShortFormat);
    }
    return locale.toString(when.date(), QLocale::ShortFormat);
}

void ChatListModel::setChats(const QVector<ChatSummary>& chats) {
    beginResetModel();
    m_chats = chats;
    endResetModel();
}

QModelIndex ChatListModel::indexOf(qint64 chat) const {
    for (int row = 0; row < m_chats.size(); ++row) {
        if (m_chats[row].id == chat) return index(row);
    }
    return {};
}

void ChatListModel::touch(qint64 chat, const QString& title, qint64 changed) {
    const QModelIndex at = indexOf(chat);
    if (at.isValid() && at.row() == 0) {
        m_chats[0].title = title;
        m_chats[0].changed = changed;
        Q_EMIT dataChanged(at, at);
        return;
    }
    if (at.isValid()) {
        beginMoveRows({}, at.row(), at.row(), {}, 0);
        m_chats.move(at.row(), 0);
        endMoveRows();
        m_chats[0].title = title;
        m_chats[0].changed = changed;
        Q_EMIT dataChanged(index(0), index(0));
        return;
    }
    beginInsertRows({}, 0, 0);
    m_chats.prepend({chat, title, changed});
    endInsertRows();
}

ChatSummary ChatListModel::take(qint64 chat) {
    const QModelIndex at = indexOf(chat);
    if (!at.isValid()) return {};
    beginRemoveRows({}, at.row(), at.row());
    const ChatSummary summary = m_chats.takeAt(at.row());
    endRemoveRows();
    return summary;
}

int ChatListModel::rowCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : static_cast<int>(m_chats.size());
}

QVariant ChatListModel::data(const QModelIndex& index, int role) const {
    if (!index.isValid() || index.row() >= m_chats.size()) return {};
    const ChatSummary& chat = m_chats[index.row()];
    switch (role) {
        case Qt::DisplayRole:
        case Qt::EditRole:
        case Qt::ToolTipRole:
            return chat.title;
        case Qt::AccessibleTextRole:
            return tr("%1, %2").arg(chat.title, whenText(chat.changed));
        case IdRole:
            return chat.id;
        case ChangedRole:
            return chat.changed;
        default:
            return {};
    }
}

bool ChatListModel::setData(const QModelIndex& index, const QVariant& value, int role) {
    const QString title = value.toString().simplified();
    if (role != Qt::EditRole || !index.isValid() || title.isEmpty()) return false;
    ChatSummary& chat = m_chats[index.row()];
    if (chat.title == title) return true;
    chat.title = title;
    Q_EMIT dataChanged(index, index);
    Q_EMIT renamed(chat.id, title);
    return true;
}

Qt::ItemFlags ChatListModel::flags(const QModelIndex& index) const {
    if (!index.isValid()) return Qt::NoItemFlags;
    return QAbstractListModel::flags(index) | Qt::ItemIsEditable;
}

}  // namespace granary::gui

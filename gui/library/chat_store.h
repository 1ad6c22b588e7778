// SPDX-License-Identifier: GPL-3.0-or-later
// Chats on disk: SQLite in WAL mode. A message is written before it is sent, an answer grows by
// pieces while it streams, nothing is ever written anew as a whole. Used by one thread.
#pragma once

#include <QSqlDatabase>
#include <QVector>
#include <memory>

#include "gpu/error.h"
#include "gui/chat/chat_types.h"

class QSqlQuery;

namespace granary::gui {

class ChatStore {
  public:
    // Makes folder and file where they are missing. Errors: a file that is no database or of a
    // newer version, a folder that cannot be written.
    static Result<std::unique_ptr<ChatStore>> open(const QString& path);
    ~ChatStore();

    Result<QVector<ChatSummary>> chats(int limit);  // changed last first
    Result<qint64> createChat(const QString& title, const ChatOptions& options);
    Result<void> renameChat(qint64 chat, const QString& title);
    // Deleted chats are kept for a week, so that undo always works.
    Result<void> deleteChat(qint64 chat, bool deleted);
    Result<ChatOptions> options(qint64 chat);
    Result<void> setOptions(qint64 chat, const ChatOptions& options);

    // In order; an answer that never ended comes with what had been streamed of it, and its
    // ending is `interrupted`.
    Result<QVector<ChatMessage>> messages(qint64 chat);
    Result<qint64> append(qint64 chat, const ChatMessage& message);
    Result<void> appendPiece(qint64 message, const QString& text);
    Result<void> finish(const ChatMessage& message);  // by its id: text, ending, lines
    Result<void> remove(const QVector<qint64>& messages);

  private:
    explicit ChatStore(QString connection);
    Result<void> prepare();
    Result<void> run(QSqlQuery& query, const char* what);
    Result<void> run(const QString& sql, const char* what);
    Result<QVector<Document>> documents(qint64 message);
    tl::unexpected<Error> failure(const QString& reason, const char* what) const;

    QString m_connection;
    QSqlDatabase m_database;
};

}  // namespace granary::gui

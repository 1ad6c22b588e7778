// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/library/chat_store.h"

#include <QDateTime>
#include <QDir>
#include <QFileInfo>
#include <QSqlError>
#include <QSqlQuery>
#include <QUuid>
#include <QVariant>

namespace granary::gui {

namespace {

constexpr int kVersion = 1;
constexpr qint64 kKeepDeletedMs = 7LL * 24 * 3600 * 1000;

const char* const kSchema[] = {
    "CREATE TABLE chats (id INTEGER PRIMARY KEY, title TEXT NOT NULL, system TEXT NOT NULL,"
    " temperature REAL NOT NULL, created INTEGER NOT NULL, changed INTEGER NOT NULL,"
    " deleted INTEGER NOT NULL DEFAULT 0)",
    "CREATE INDEX chats_changed ON chats (deleted, changed)",
    "CREATE TABLE messages (id INTEGER PRIMARY KEY,"
    " chat INTEGER NOT NULL REFERENCES chats ON DELETE CASCADE, role TEXT NOT NULL,"
    " text TEXT NOT NULL, ending TEXT NOT NULL, kept TEXT NOT NULL, memory TEXT NOT NULL,"
    " created INTEGER NOT NULL)",
    "CREATE INDEX messages_chat ON messages (chat, id)",
    "CREATE TABLE pieces (id INTEGER PRIMARY KEY,"
    " message INTEGER NOT NULL REFERENCES messages ON DELETE CASCADE, text TEXT NOT NULL)",
    "CREATE INDEX pieces_message ON pieces (message, id)",
    "CREATE TABLE documents (hash BLOB PRIMARY KEY, text BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE message_documents ("
    " message INTEGER NOT NULL REFERENCES messages ON DELETE CASCADE, position INTEGER NOT NULL,"
    " hash BLOB NOT NULL, name TEXT NOT NULL, path TEXT NOT NULL, title TEXT NOT NULL,"
    " part TEXT NOT NULL, pages INTEGER NOT NULL, tokens INTEGER NOT NULL,"
    " PRIMARY KEY (message, position)) WITHOUT ROWID",
};

qint64 now() {
    return QDateTime::currentMSecsSinceEpoch();
}

// SQLite takes a null QString for NULL; our columns hold text.
QString text(const QString& value) {
    return value.isNull() ? QStringLiteral("") : value;
}

}  // namespace

ChatStore::ChatStore(QString connection) : m_connection(std::move(connection)) {}

ChatStore::~ChatStore() {
    m_database.close();
    m_database = QSqlDatabase();
    QSqlDatabase::removeDatabase(m_connection);
}

tl::unexpected<Error> ChatStore::failure(const QString& reason, const char* what) const {
    return fail(ErrorKind::io, what,
                m_database.databaseName().toStdString() + ": " + reason.toStdString(),
                "Check that the disk is not full and that the folder can be written");
}

Result<void> ChatStore::run(QSqlQuery& query, const char* what) {
    if (!query.exec()) return failure(query.lastError().text(), what);
    return {};
}

Result<void> ChatStore::run(const QString& sql, const char* what) {
    QSqlQuery query(m_database);
    if (!query.exec(sql)) return failure(query.lastError().text(), what);
    return {};
}

Result<std::unique_ptr<ChatStore>> ChatStore::open(const QString& path) {
    auto store = std::unique_ptr<ChatStore>(
        new ChatStore(QUuid::createUuid().toString(QUuid::WithoutBraces)));
    QDir().mkpath(QFileInfo(path).absolutePath());
    store->m_database = QSqlDatabase::addDatabase(QStringLiteral("QSQLITE"), store->m_connection);
    store->m_database.setDatabaseName(path);
    if (!store->m_database.open()) {
        return store->failure(store->m_database.lastError().text(), "The chats cannot be opened");
    }
    if (auto ready = store->prepare(); !ready) return tl::unexpected(ready.error());
    return store;
}

Result<void> ChatStore::prepare() {
    const char* const what = "The chats cannot be opened";
    for (const char* pragma : {"PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL",
                               "PRAGMA foreign_keys=ON", "PRAGMA busy_timeout=3000"}) {
        if (auto done = run(QLatin1String(pragma), what); !done) return done;
    }
    QSqlQuery version(m_database);
    if (!version.exec(QStringLiteral("PRAGMA user_version")) || !version.next()) {
        return failure(version.lastError().text(), what);
    }
    const int found = version.value(0).toInt();
    version.finish();
    if (found > kVersion) {
        return failure(
            QStringLiteral("version %1, this program knows up to %2").arg(found).arg(kVersion),
            what);
    }
    if (found == 0) {
        m_database.transaction();
        for (const char* statement : kSchema) {
            if (auto done = run(QLatin1String(statement), what); !done) {
                m_database.rollback();
                return done;
            }
        }
        if (auto done = run(QStringLiteral("PRAGMA user_version=%1").arg(kVersion), what); !done) {
            return done;
        }
        if (!m_database.commit()) return failure(m_database.lastError().text(), what);
    }
    QSqlQuery purge(m_database);
    purge.prepare(QStringLiteral("DELETE FROM chats WHERE deleted > 0 AND deleted < ?"));
    purge.addBindValue(now() - kKeepDeletedMs);
    if (auto done = run(purge, what); !done) return done;
    return run(QStringLiteral("DELETE FROM documents WHERE hash NOT IN"
                              " (SELECT hash FROM message_documents)"),
               what);
}

Result<QVector<ChatSummary>> ChatStore::chats(int limit) {
    QSqlQuery query(m_database);
    query.setForwardOnly(true);
    query.prepare(
        QStringLiteral("SELECT id, title, changed FROM chats WHERE deleted = 0"
                       " ORDER BY changed DESC, id DESC LIMIT ?"));
    query.addBindValue(limit);
    if (auto done = run(query, "The list of chats cannot be read"); !done) {
        return tl::unexpected(done.error());
    }
    QVector<ChatSummary> chats;
    while (query.next()) {
        chats.push_back(
            {query.value(0).toLongLong(), query.value(1).toString(), query.value(2).toLongLong()});
    }
    return chats;
}

Result<qint64> ChatStore::createChat(const QString& title, const ChatOptions& options) {
    QSqlQuery query(m_database);
    query.prepare(
        QStringLiteral("INSERT INTO chats (title, system, temperature, created, changed)"
                       " VALUES (?, ?, ?, ?, ?)"));
    query.addBindValue(text(title));
    query.addBindValue(text(options.systemPrompt));
    query.addBindValue(options.temperature);
    query.addBindValue(now());
    query.addBindValue(now());
    if (auto done = run(query, "The chat cannot be stored"); !done) {
        return tl::unexpected(done.error());
    }
    return query.lastInsertId().toLongLong();
}

Result<void> ChatStore::renameChat(qint64 chat, const QString& title) {
    QSqlQuery query(m_database);
    query.prepare(QStringLiteral("UPDATE chats SET title = ? WHERE id = ?"));
    query.addBindValue(text(title));
    query.addBindValue(chat);
    return run(query, "The chat cannot be renamed");
}

Result<void> ChatStore::deleteChat(qint64 chat, bool deleted) {
    QSqlQuery query(m_database);
    query.prepare(QStringLiteral("UPDATE chats SET deleted = ? WHERE id = ?"));
    query.addBindValue(deleted ? now() : 0);
    query.addBindValue(chat);
    return run(query, "The chat cannot be deleted");
}

Result<ChatOptions> ChatStore::options(qint64 chat) {
    QSqlQuery query(m_database);
    query.prepare(QStringLiteral("SELECT system, temperature FROM chats WHERE id = ?"));
    query.addBindValue(chat);
    if (auto done = run(query, "The chat cannot be read"); !done) {
        return tl::unexpected(done.error());
    }
    if (!query.next()) return failure(QStringLiteral("no such chat"), "The chat cannot be read");
    return ChatOptions{query.value(0).toString(), query.value(1).toDouble()};
}

Result<void> ChatStore::setOptions(qint64 chat, const ChatOptions& options) {
    QSqlQuery query(m_database);
    query.prepare(QStringLiteral("UPDATE chats SET system = ?, temperature = ? WHERE id = ?"));
    query.addBindValue(text(options.systemPrompt));
    query.addBindValue(options.temperature);
    query.addBindValue(chat);
    return run(query, "The options of the chat cannot be stored");
}

Result<QVector<Document>> ChatStore::documents(qint64 message) {
    QSqlQuery query(m_database);
    query.setForwardOnly(true);
    query.prepare(QStringLiteral(
        "SELECT name, path, title, part, pages, tokens, d.hash, d.text FROM message_documents AS m"
        " JOIN documents AS d ON d.hash = m.hash WHERE message = ? ORDER BY position"));
    query.addBindValue(message);
    if (auto done = run(query, "The chat cannot be read"); !done) {
        return tl::unexpected(done.error());
    }
    QVector<Document> documents;
    while (query.next()) {
        documents.push_back({query.value(0).toString(), query.value(1).toString(),
                             query.value(2).toString(), query.value(3).toString(),
                             query.value(4).toInt(),
                             std::make_shared<const QByteArray>(query.value(7).toByteArray()),
                             query.value(6).toByteArray(), query.value(5).toLongLong()});
    }
    return documents;
}

Result<QVector<ChatMessage>> ChatStore::messages(qint64 chat) {
    QSqlQuery query(m_database);
    query.setForwardOnly(true);
    query.prepare(
        QStringLiteral("SELECT id, role, text, ending, kept, memory,"
                       " (SELECT group_concat(p.text, '') FROM"
                       "   (SELECT text FROM pieces WHERE message = messages.id ORDER BY id) AS p)"
                       " FROM messages WHERE chat = ? ORDER BY id"));
    query.addBindValue(chat);
    if (auto done = run(query, "The chat cannot be read"); !done) {
        return tl::unexpected(done.error());
    }
    QVector<ChatMessage> messages;
    while (query.next()) {
        ChatMessage message;
        message.id = query.value(0).toLongLong();
        message.role = roleFromName(query.value(1).toString());
        message.text = query.value(2).toString() + query.value(6).toString();
        message.ending = endingFromName(query.value(3).toString());
        message.keptLine = query.value(4).toString();
        message.memoryLine = query.value(5).toString();
        if (message.role == Role::assistant && message.ending == Ending::none) {
            message.ending = Ending::interrupted;
        }
        messages.push_back(message);
    }
    for (ChatMessage& message : messages) {
        if (message.role != Role::user) continue;
        auto found = documents(message.id);
        if (!found) return tl::unexpected(found.error());
        message.documents = *found;
    }
    return messages;
}

Result<qint64> ChatStore::append(qint64 chat, const ChatMessage& message) {
    const char* const what = "The message cannot be stored";
    if (!m_database.transaction()) return failure(m_database.lastError().text(), what);
    const auto write = [&]() -> Result<qint64> {
        QSqlQuery query(m_database);
        query.prepare(
            QStringLiteral("INSERT INTO messages (chat, role, text, ending, kept,"
                           " memory, created) VALUES (?, ?, ?, ?, ?, ?, ?)"));
        query.addBindValue(chat);
        query.addBindValue(roleName(message.role));
        query.addBindValue(text(message.text));
        query.addBindValue(endingName(message.ending));
        query.addBindValue(text(message.keptLine));
        query.addBindValue(text(message.memoryLine));
        query.addBindValue(now());
        if (auto done = run(query, what); !done) return tl::unexpected(done.error());
        const qint64 id = query.lastInsertId().toLongLong();
        int position = 0;
        for (const Document& document : message.documents) {
            QSqlQuery body(m_database);
            body.prepare(
                QStringLiteral("INSERT OR IGNORE INTO documents (hash, text) VALUES (?, ?)"));
            body.addBindValue(document.hash);
            body.addBindValue(document.text ? *document.text : QByteArray());
            if (auto done = run(body, what); !done) return tl::unexpected(done.error());
            QSqlQuery link(m_database);
            link.prepare(
                QStringLiteral("INSERT INTO message_documents (message, position, hash,"
                               " name, path, title, part, pages, tokens)"
                               " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"));
            link.addBindValue(id);
            link.addBindValue(position++);
            link.addBindValue(document.hash);
            link.addBindValue(text(document.name));
            link.addBindValue(text(document.path));
            link.addBindValue(text(document.title));
            link.addBindValue(text(document.part));
            link.addBindValue(document.pages);
            link.addBindValue(document.tokens);
            if (auto done = run(link, what); !done) return tl::unexpected(done.error());
        }
        QSqlQuery touch(m_database);
        touch.prepare(QStringLiteral("UPDATE chats SET changed = ? WHERE id = ?"));
        touch.addBindValue(now());
        touch.addBindValue(chat);
        if (auto done = run(touch, what); !done) return tl::unexpected(done.error());
        return id;
    };
    auto id = write();
    if (!id) {
        m_database.rollback();
        return id;
    }
    if (!m_database.commit()) return failure(m_database.lastError().text(), what);
    return id;
}

Result<void> ChatStore::appendPiece(qint64 message, const QString& piece) {
    QSqlQuery query(m_database);
    query.prepare(QStringLiteral("INSERT INTO pieces (message, text) VALUES (?, ?)"));
    query.addBindValue(message);
    query.addBindValue(text(piece));
    return run(query, "The answer cannot be stored");
}

Result<void> ChatStore::finish(const ChatMessage& message) {
    const char* const what = "The answer cannot be stored";
    if (!m_database.transaction()) return failure(m_database.lastError().text(), what);
    QSqlQuery query(m_database);
    query.prepare(QStringLiteral(
        "UPDATE messages SET text = ?, ending = ?, kept = ?, memory = ? WHERE id = ?"));
    query.addBindValue(text(message.text));
    query.addBindValue(endingName(message.ending));
    query.addBindValue(text(message.keptLine));
    query.addBindValue(text(message.memoryLine));
    query.addBindValue(message.id);
    QSqlQuery pieces(m_database);
    pieces.prepare(QStringLiteral("DELETE FROM pieces WHERE message = ?"));
    pieces.addBindValue(message.id);
    for (QSqlQuery* statement : {&query, &pieces}) {
        if (auto done = run(*statement, what); !done) {
            m_database.rollback();
            return done;
        }
    }
    if (!m_database.commit()) return failure(m_database.lastError().text(), what);
    return {};
}

Result<void> ChatStore::remove(const QVector<qint64>& messages) {
    for (const qint64 message : messages) {
        QSqlQuery query(m_database);
        query.prepare(QStringLiteral("DELETE FROM messages WHERE id = ?"));
        query.addBindValue(message);
        if (auto done = run(query, "The message cannot be removed"); !done) return done;
    }
    return {};
}

}  // namespace granary::gui

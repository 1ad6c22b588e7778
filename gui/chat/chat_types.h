// SPDX-License-Identifier: GPL-3.0-or-later
// What a chat consists of: values shared by transcript, store and session.
#pragma once

#include <QByteArray>
#include <QMetaType>
#include <QString>
#include <QVector>
#include <memory>

namespace granary::gui {

// Text of a document as the model reads it. Shared, never changed.
struct Document {
    QString name;   // "alice.txt"
    QString path;   // where it came from; empty for pasted text
    QString title;  // from the file; may be empty
    QString part;   // which part was chosen; empty: all of it
    int pages = 1;
    std::shared_ptr<const QByteArray> text;  // UTF-8
    QByteArray hash;                         // SHA-256 of the text
    qint64 tokens = -1;                      // -1: not counted yet

    // "alice.txt", "alice.txt (part 1 to 12 %)"
    QString label() const;
};

enum class Role { system, user, assistant };
QString roleName(Role role);  // "user"; the word of the templates and of the store
Role roleFromName(const QString& name);

// How an answer ended. interrupted: the program ended while it streamed.
enum class Ending { none, answered, tokenLimit, contextFull, stopped, failed, interrupted };
QString endingName(Ending ending);
Ending endingFromName(const QString& name);

struct ChatMessage {
    qint64 id = 0;  // of the store; 0: not stored
    Role role = Role::user;
    QString text;
    QVector<Document> documents;  // user: read before the text
    Ending ending = Ending::none;
    QString memoryLine;  // assistant: what memory did while the prompt was read
    QString keptLine;    // assistant: what was kept, where something was
    bool live = false;   // assistant: of this run, so that the map may still have its frames
};

struct ChatSummary {
    qint64 id = 0;
    QString title;
    qint64 changed = 0;  // milliseconds since 1970, UTC
};

struct ChatOptions {
    QString systemPrompt;
    double temperature = 0;
    bool operator==(const ChatOptions&) const = default;
};

}  // namespace granary::gui

Q_DECLARE_METATYPE(granary::gui::Document)
Q_DECLARE_METATYPE(granary::gui::ChatMessage)

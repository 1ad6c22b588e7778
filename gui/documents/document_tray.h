// SPDX-License-Identifier: GPL-3.0-or-later
// The documents that go with the next question, each with its tokens before anything is sent.
#pragma once

#include <QVector>
#include <QWidget>
#include <memory>
#include <vector>

#include "gpu/error.h"
#include "gui/chat/chat_types.h"
#include "gui/documents/token_counter.h"

namespace granary::gui {

class Chip;
class Extractor;
class FlowLayout;

class DocumentTray : public QWidget {
    Q_OBJECT

  public:
    explicit DocumentTray(TokenCounter& counter, QWidget* parent = nullptr);
    ~DocumentTray() override;

    void addFile(const QString& path);
    void add(const Document& document);
    void replace(int index, const Document& document);
    void remove(int index);
    void clear();
    void recount();  // the tokenizer changed

    QVector<Document> documents() const;  // those that are read
    std::shared_ptr<const TokenIndex> index(int at) const;
    int count() const { return static_cast<int>(m_entries.size()); }
    bool reading() const;   // a file is still being read
    bool counting() const;  // a count is still missing though a model is open
    qint64 tokens() const;  // of all counted documents

    static constexpr int kMost = 32;  // documents at once

  Q_SIGNALS:
    void changed();
    void refused(const granary::Error& error);
    void counted(int index);  // its tokens are known now

  private:
    struct Entry {
        quint64 key;
        Document document;
        std::shared_ptr<const TokenIndex> index;
        std::unique_ptr<Extractor> extractor;  // while the file is read
        Chip* chip;
    };
    Entry* find(quint64 key);
    Entry& append(const QString& name);
    void show(Entry& entry);
    void count(Entry& entry);
    void removeKey(quint64 key);

    TokenCounter& m_counter;
    FlowLayout* m_layout;
    std::vector<Entry> m_entries;
    quint64 m_nextKey = 1;
};

}  // namespace granary::gui

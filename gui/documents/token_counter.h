// SPDX-License-Identifier: GPL-3.0-or-later
// Counts tokens beside the window: a book takes a second, and nobody should wait for it.
#pragma once

#include <QObject>
#include <QThreadPool>
#include <functional>
#include <memory>
#include <vector>

#include "granary/tokenizer.h"

namespace granary::gui {

// Where tokens lie in a text: the byte offset of every kEvery-th token.
struct TokenIndex {
    static constexpr qint64 kEvery = 32;
    qint64 tokens = 0;
    std::vector<qint64> offsets;

    // Byte offset of `token`, between known ones in proportion.
    qint64 offset(qint64 token, qint64 bytes) const;
};

TokenIndex indexTokens(const Tokenizer& tokenizer, const QByteArray& text);

class TokenCounter : public QObject {
    Q_OBJECT

  public:
    explicit TokenCounter(QObject* parent = nullptr);
    ~TokenCounter() override;

    // Null: no model is open; counts started before are forgotten.
    void setTokenizer(std::shared_ptr<const Tokenizer> tokenizer);
    bool ready() const { return m_tokenizer != nullptr; }

    // Calls then(index) in this thread, unless the tokenizer was changed meanwhile.
    void count(std::shared_ptr<const QByteArray> text,
               std::function<void(std::shared_ptr<const TokenIndex>)> then);

  private:
    std::shared_ptr<const Tokenizer> m_tokenizer;
    quint64 m_generation = 0;
    QThreadPool m_pool;
};

}  // namespace granary::gui

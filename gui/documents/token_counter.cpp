// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/documents/token_counter.h"

#include <algorithm>

namespace granary::gui {

qint64 TokenIndex::offset(qint64 token, qint64 bytes) const {
    if (token <= 0 || offsets.empty()) return 0;
    if (token >= tokens) return bytes;
    const auto at = static_cast<size_t>(token / kEvery);
    const qint64 from = offsets[std::min(at, offsets.size() - 1)];
    const qint64 to = at + 1 < offsets.size() ? offsets[at + 1] : bytes;
    const qint64 span = std::min(kEvery, tokens - static_cast<qint64>(at) * kEvery);
    return from + (to - from) * (token % kEvery) / std::max<qint64>(1, span);
}

TokenIndex indexTokens(const Tokenizer& tokenizer, const QByteArray& text) {
    const std::vector<TokenId> ids =
        tokenizer.encode({text.constData(), static_cast<size_t>(text.size())}, false);
    TokenIndex index;
    index.tokens = static_cast<qint64>(ids.size());
    qint64 offset = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
        if (i % TokenIndex::kEvery == 0)
            index.offsets.push_back(std::min<qint64>(offset, text.size()));
        offset += static_cast<qint64>(tokenizer.piece(ids[i]).size());
    }
    return index;
}

TokenCounter::TokenCounter(QObject* parent) : QObject(parent) {
    m_pool.setMaxThreadCount(1);
    m_pool.setThreadPriority(QThread::LowPriority);
}

TokenCounter::~TokenCounter() {
    m_pool.clear();
    m_pool.waitForDone();
}

void TokenCounter::setTokenizer(std::shared_ptr<const Tokenizer> tokenizer) {
    m_tokenizer = std::move(tokenizer);
    ++m_generation;
    m_pool.clear();
}

void TokenCounter::count(std::shared_ptr<const QByteArray> text,
                         std::function<void(std::shared_ptr<const TokenIndex>)> then) {
    if (!m_tokenizer || !text) return;
    m_pool.start([this, tokenizer = m_tokenizer, generation = m_generation, text = std::move(text),
                  then = std::move(then)] {
        auto index = std::make_shared<const TokenIndex>(indexTokens(*tokenizer, *text));
        QMetaObject::invokeMethod(this, [this, generation, then, index] {
            if (generation == m_generation) then(index);
        });
    });
}

}  // namespace granary::gui

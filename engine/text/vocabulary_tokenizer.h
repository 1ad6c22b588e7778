// SPDX-License-Identifier: GPL-3.0-or-later
// What tokenisers of all kinds share: special tokens in the text, BOS, pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/text/special_tokens.h"
#include "engine/text/vocabulary.h"
#include "granary/tokenizer.h"

namespace granary::text {

// A longer word is cut, so that work space and the time of a step stay bounded. No word of a
// natural text is as long, and inside the parts all merges are exact.
inline constexpr size_t longest_word = size_t{1} << 18;

class VocabularyTokenizer : public Tokenizer {
  public:
    std::vector<TokenId> encode(std::string_view text, bool special) const final;
    std::string as_plain_text(std::string_view text) const final;
    std::string as_answer_text(std::string_view text) const final;
    std::string piece(TokenId token, bool special) const final;
    uint32_t size() const final { return vocabulary_.size(); }
    bool ends_answer(TokenId token) const final;
    TokenId bos() const final { return vocabulary_.bos; }
    TokenId eos() const final { return vocabulary_.eos; }
    bool adds_bos() const final { return vocabulary_.adds_bos; }

  protected:
    explicit VocabularyTokenizer(const VocabularyFile& file);

    // Appends the tokens of plain text: at the front of a text or behind a special token.
    virtual void encode_plain(std::string_view text, std::vector<TokenId>& tokens) const = 0;

    // Pieces are given once, in token order, while constructing.
    void append_piece(std::string_view bytes);
    std::string_view piece_bytes(TokenId token) const;
    const Vocabulary& vocabulary() const { return vocabulary_; }

  private:
    std::string marked(std::string_view text, bool user_defined_too) const;

    Vocabulary vocabulary_;
    SpecialTokens specials_;
    std::string pieces_;              // one behind the other
    std::vector<size_t> piece_ends_;  // in pieces_
};

// Tokens of words met before in this text: natural text repeats most of its words.
class WordCache {
  public:
    // `tokens` is where the words' tokens are appended, and stay.
    WordCache(size_t text_bytes, std::vector<TokenId>& tokens);

    // Calls `encode`, which appends the word's tokens, only where the cache does not know them.
    template <class Encode>
    void append(std::string_view word, Encode&& encode) {
        if (word.size() > longest_kept) {
            encode();
            return;
        }
        Entry& entry = entry_of(word);
        if (entry.word == word) {
            append_again(entry.first, entry.count);
            return;
        }
        const size_t first = tokens_.size();
        encode();
        entry = {word, first, tokens_.size() - first};
    }

  private:
    static constexpr size_t longest_kept = 64;
    struct Entry {
        std::string_view word;  // a view of the text; empty: free
        size_t first = 0;       // in tokens_
        size_t count = 0;
    };
    Entry& entry_of(std::string_view word);
    void append_again(size_t first, size_t count);

    std::vector<TokenId>& tokens_;
    std::vector<Entry> entries_;
};

}  // namespace granary::text

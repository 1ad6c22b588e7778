// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/vocabulary_tokenizer.h"

#include <algorithm>
#include <bit>

#include "engine/text/hash.h"

namespace granary::text {
namespace {

SpecialTokens specials_of(const VocabularyFile& file) {
    std::vector<SpecialTokens::Name> names;
    for (size_t i = 0; i < file.texts.size(); ++i) {
        const TokenType type = file.vocabulary.types[i];
        if (type == TokenType::control || type == TokenType::user_defined) {
            names.push_back({std::string(file.texts[i]), static_cast<TokenId>(i)});
        }
    }
    return SpecialTokens(std::move(names));
}

constexpr std::string_view kPlainMark = "\xEF\xB7\x90";  // U+FDD0

std::string without_marks(std::string_view text) {
    std::string plain;
    plain.reserve(text.size());
    for (size_t at = 0; at <= text.size();) {
        const size_t mark = std::min(text.find(kPlainMark, at), text.size());
        plain += text.substr(at, mark - at);
        at = mark + kPlainMark.size();
    }
    return plain;
}

}  // namespace

VocabularyTokenizer::VocabularyTokenizer(const VocabularyFile& file)
    : vocabulary_(file.vocabulary), specials_(specials_of(file)) {
    piece_ends_.reserve(file.texts.size());
}

std::vector<TokenId> VocabularyTokenizer::encode(std::string_view text, bool special) const {
    std::vector<TokenId> tokens;
    tokens.reserve(text.size() / 3 + 2);
    if (!special) {
        encode_plain(text, tokens);
        return tokens;
    }
    const auto plain = [&](std::string_view part) {
        if (part.empty()) return;
        if (part.find(kPlainMark) == std::string_view::npos)
            encode_plain(part, tokens);
        else
            encode_plain(without_marks(part), tokens);
    };
    size_t plain_begin = 0;
    for (size_t at = 0; at < text.size();) {
        const auto match = specials_.find(text, at);
        if (!match) break;
        at = match->at + match->bytes;
        if (text.substr(0, match->at).ends_with(kPlainMark)) continue;
        plain(text.substr(plain_begin, match->at - plain_begin));
        tokens.push_back(match->token);
        plain_begin = at;
    }
    plain(text.substr(plain_begin));
    // Chat templates often write BOS themselves; a second one would be read as an empty text.
    const bool there = !tokens.empty() && tokens.front() == vocabulary_.bos;
    if (vocabulary_.adds_bos && !there) tokens.insert(tokens.begin(), vocabulary_.bos);
    return tokens;
}

std::string VocabularyTokenizer::as_plain_text(std::string_view text) const {
    return marked(text, true);
}

std::string VocabularyTokenizer::as_answer_text(std::string_view text) const {
    return marked(text, false);
}

std::string VocabularyTokenizer::marked(std::string_view text, bool user_defined_too) const {
    std::string clean;
    if (text.find(kPlainMark) != std::string_view::npos) {
        clean = without_marks(text);
        text = clean;
    }
    std::string result;
    size_t at = 0;
    while (const auto match = specials_.find(text, at)) {
        const TokenType type = vocabulary_.types[static_cast<size_t>(match->token)];
        result += text.substr(at, match->at - at);
        if (user_defined_too || type == TokenType::control) result += kPlainMark;
        result += text.substr(match->at, match->bytes);
        at = match->at + match->bytes;
    }
    result += text.substr(at);
    return result;
}

std::string VocabularyTokenizer::piece(TokenId token, bool special) const {
    if (token < 0 || static_cast<size_t>(token) >= piece_ends_.size()) return {};
    const TokenType type = vocabulary_.types[static_cast<size_t>(token)];
    const bool shown =
        type == TokenType::normal || type == TokenType::user_defined || type == TokenType::byte;
    return shown || special ? std::string(piece_bytes(token)) : std::string();
}

bool VocabularyTokenizer::ends_answer(TokenId token) const {
    const auto& ends = vocabulary_.answer_ends;
    return std::binary_search(ends.begin(), ends.end(), token);
}

void VocabularyTokenizer::append_piece(std::string_view bytes) {
    pieces_.append(bytes);
    piece_ends_.push_back(pieces_.size());
}

std::string_view VocabularyTokenizer::piece_bytes(TokenId token) const {
    const size_t i = static_cast<size_t>(token);
    const size_t begin = i == 0 ? 0 : piece_ends_[i - 1];
    return std::string_view(pieces_).substr(begin, piece_ends_[i] - begin);
}

WordCache::WordCache(size_t text_bytes, std::vector<TokenId>& tokens)
    : tokens_(tokens), entries_(std::bit_ceil(std::clamp<size_t>(text_bytes / 8, 16, 1 << 15))) {}

WordCache::Entry& WordCache::entry_of(std::string_view word) {
    return entries_[hash_bytes(word, hash_multiplier) & (entries_.size() - 1)];
}

void WordCache::append_again(size_t first, size_t count) {
    const size_t end = tokens_.size();
    tokens_.resize(end + count);
    std::copy_n(tokens_.begin() + static_cast<ptrdiff_t>(first), count,
                tokens_.begin() + static_cast<ptrdiff_t>(end));
}

}  // namespace granary::text

// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/sentence_piece_tokenizer.h"

#include <algorithm>

#include "engine/gguf/printable.h"
#include "engine/text/sentence_piece_merges.h"
#include "engine/text/utf8.h"
#include "engine/text/vocabulary_tokenizer.h"

namespace granary::text {
namespace {

// Bytes of the space, or of the mark that stands for one, at the front of a text; 0: none.
size_t space_bytes(std::string_view text) {
    if (text.front() == ' ') return 1;
    return text.starts_with(space_mark_utf8) ? space_mark_utf8.size() : 0;
}

// Bytes of the word at the front of a text: spaces, then everything up to the next space.
size_t word_bytes(std::string_view text) {
    size_t at = 0;
    while (at < text.size()) {
        const size_t space = space_bytes(text.substr(at));
        if (space == 0) break;
        at += space;
    }
    while (at < text.size() && space_bytes(text.substr(at)) == 0) ++at;
    return at;
}

// What no token contains is kept as a negative number while the text around it is merged. Bytes
// that are part of no character come behind the code points.
constexpr char32_t stray_bytes = 0x110000;

TokenId unspelled(char32_t number) {
    return -2 - static_cast<TokenId>(number);
}

bool has_all_bytes(const SentencePieceMerges& merging) {
    const auto& tokens = merging.byte_tokens;
    return std::find(tokens.begin(), tokens.end(), -1) == tokens.end();
}

class SentencePieceTokenizer final : public VocabularyTokenizer {
  public:
    SentencePieceTokenizer(const VocabularyFile& file, SentencePieceMerges merging, bool adds_space)
        : VocabularyTokenizer(file),
          merging_(std::move(merging)),
          adds_space_(adds_space),
          falls_back_to_bytes_(has_all_bytes(merging_)) {
        std::string bytes;
        for (size_t i = 0; i < file.texts.size(); ++i) {
            std::string_view text = file.texts[i];
            const TokenType type = file.vocabulary.types[i];
            bytes.clear();
            if (type == TokenType::byte) {
                bytes.push_back(static_cast<char>(named_byte(text).value_or(0)));
            } else if (type == TokenType::normal) {
                for (size_t mark; (mark = text.find(space_mark_utf8)) != std::string_view::npos;) {
                    bytes.append(text.substr(0, mark)).push_back(' ');
                    text.remove_prefix(mark + space_mark_utf8.size());
                }
                bytes.append(text);
            } else {
                bytes.append(text);
            }
            append_piece(bytes);
        }
    }

  private:
    void encode_plain(std::string_view text, std::vector<TokenId>& tokens) const override {
        Merger merger(merging_.merges);
        WordCache cache(merging_.words_are_independent ? text.size() : 0, tokens);
        for (bool first = true; !text.empty(); first = false) {
            const std::string_view word =
                merging_.words_are_independent ? text.substr(0, word_bytes(text)) : text;
            text.remove_prefix(word.size());
            const bool after_space = first && adds_space_;
            const auto encode = [&] { encode_word(word, after_space, merger, tokens); };
            if (after_space) {
                encode();  // not what this word gives elsewhere
            } else {
                cache.append(word, encode);
            }
        }
    }

    void encode_word(std::string_view word, bool after_space, Merger& merger,
                     std::vector<TokenId>& tokens) const {
        size_t first = tokens.size();
        if (after_space) tokens.push_back(symbol_of(space_mark));
        while (!word.empty()) {
            word.remove_prefix(append_symbols(word, tokens));
            if (!word.empty() && tokens.size() - first < longest_word) continue;
            tokens.resize(first + merger.merge(std::span(tokens).subspan(first)));
            spell_rest(first, tokens);
            first = tokens.size();
        }
    }

    TokenId symbol_of(char32_t character) const {
        const TokenId symbol = merging_.symbols[character];
        return symbol < 0 ? unspelled(character) : symbol;
    }

    // Appends the symbol of the character at the front of the text, or those of bytes that are
    // none, and gives how many bytes these are.
    size_t append_symbols(std::string_view text, std::vector<TokenId>& symbols) const {
        if (const size_t space = space_bytes(text)) {
            symbols.push_back(symbol_of(space_mark));
            return space;
        }
        const Utf8Step step = utf8_step(text);
        if (step.kind == Utf8Step::Kind::character) {
            symbols.push_back(symbol_of(code_point(text.substr(0, step.bytes))));
        } else {
            for (const char c : text.substr(0, step.bytes)) {
                symbols.push_back(unspelled(stray_bytes + static_cast<uint8_t>(c)));
            }
        }
        return step.bytes;
    }

    // Replaces merged symbols from `first` on that are no tokens by byte tokens or the unknown one.
    void spell_rest(size_t first, std::vector<TokenId>& tokens) const {
        const auto is_token = [&](TokenId symbol) {
            return symbol >= 0 && static_cast<uint32_t>(symbol) < size();
        };
        const auto begin = tokens.begin() + static_cast<ptrdiff_t>(first);
        if (std::all_of(begin, tokens.end(), is_token)) return;
        const std::vector<TokenId> merged(begin, tokens.end());
        tokens.resize(first);
        std::string bytes;
        for (const TokenId symbol : merged) {
            if (is_token(symbol)) {
                tokens.push_back(symbol);
                continue;
            }
            if (!falls_back_to_bytes_) {
                tokens.push_back(vocabulary().unknown);
                continue;
            }
            const char32_t number =
                symbol < 0 ? static_cast<char32_t>(-2 - symbol)
                           : merging_.extra_characters[static_cast<size_t>(symbol) - size()];
            bytes.clear();
            if (number >= stray_bytes) {
                bytes.push_back(static_cast<char>(number - stray_bytes));
            } else {
                append_utf8(number, bytes);
            }
            for (const char c : bytes) {
                tokens.push_back(merging_.byte_tokens[static_cast<uint8_t>(c)]);
            }
        }
    }

    SentencePieceMerges merging_;
    bool adds_space_;  // in front of a text, so that its first word is like the others
    bool falls_back_to_bytes_;
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> make_sentence_piece_tokenizer(const gguf::File& file) {
    const auto tokens = read_vocabulary(file, true);
    if (!tokens) return tl::unexpected(tokens.error());
    const auto adds_space = file.find_bool("tokenizer.ggml.add_space_prefix");
    if (!adds_space) return tl::unexpected(adds_space.error());
    auto merging = read_sentence_piece_merges(file, *tokens);
    if (!merging) return tl::unexpected(merging.error());
    if (!has_all_bytes(*merging) && tokens->vocabulary.unknown < 0) {
        return fail(ErrorKind::invalid_file,
                    "the vocabulary can neither spell all bytes nor has it an unknown token",
                    gguf::quoted(tokens->path) + ": tokens <0x00> to <0xFF>, " +
                        "tokenizer.ggml.unknown_token_id");
    }
    return std::make_shared<const SentencePieceTokenizer>(*tokens, std::move(*merging),
                                                          adds_space->value_or(true));
}

}  // namespace granary::text

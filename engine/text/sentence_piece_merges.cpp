// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/sentence_piece_merges.h"

#include <bit>
#include <cmath>

#include "engine/gguf/printable.h"
#include "engine/text/text_index.h"
#include "engine/text/utf8.h"

namespace granary::text {
namespace {

constexpr size_t code_points = 0x110000;

// Ways to cut a token in two others; published vocabularies have about four a token. The bound is
// on the table that a file can make us fill.
constexpr size_t most_cuts = 8 * largest_vocabulary;

tl::unexpected<Error> broken(const VocabularyFile& file, const char* what,
                             const std::string& detail) {
    return fail(ErrorKind::invalid_file, what, gguf::quoted(file.path) + ": " + detail);
}

// A lower number for a higher score. The bits of a float are ordered as sign and magnitude.
uint32_t priority_of(float score) {
    const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 counts as 0
    const uint32_t ascending = bits >> 31 ? ~bits : bits | 0x80000000u;
    return ~ascending;
}

Result<std::vector<uint32_t>> read_priorities(const gguf::File& file,
                                              const VocabularyFile& tokens) {
    constexpr const char* key = "tokenizer.ggml.scores";
    const auto found = file.get_array(key);
    if (!found) return tl::unexpected(found.error());
    const gguf::Array& array = **found;
    if (array.size() != tokens.texts.size()) {
        return broken(tokens, "tokens and scores differ in number",
                      std::to_string(tokens.texts.size()) + " tokens, " +
                          std::to_string(array.size()) + " entries in " + key);
    }
    if (array.kind() != gguf::Array::Kind::real) {
        return broken(tokens, "the scores are no list of real numbers", key);
    }
    std::vector<uint32_t> priorities(array.size());
    for (size_t i = 0; i < priorities.size(); ++i) {
        const float score = static_cast<float>(array.real_at(i));
        if (std::isnan(score)) {
            return broken(tokens, "a score is not a number",
                          std::string(key) + "[" + std::to_string(i) + "]");
        }
        priorities[i] = priority_of(score);
    }
    return priorities;
}

size_t first_character(std::string_view text) {
    return utf8_step(text).bytes;
}

bool has_inner_space_mark(std::string_view text) {
    while (text.starts_with(space_mark_utf8)) text.remove_prefix(space_mark_utf8.size());
    return text.find(space_mark_utf8) != std::string_view::npos;
}

}  // namespace

std::optional<uint8_t> named_byte(std::string_view text) {
    if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return std::nullopt;
    unsigned byte = 0;
    for (const char c : text.substr(3, 2)) {
        const bool letter = c >= 'A' && c <= 'F';
        if (!letter && (c < '0' || c > '9')) return std::nullopt;
        byte = byte * 16 + static_cast<unsigned>(letter ? c - 'A' + 10 : c - '0');
    }
    return static_cast<uint8_t>(byte);
}

Result<SentencePieceMerges> read_sentence_piece_merges(const gguf::File& file,
                                                       const VocabularyFile& tokens) {
    const auto priorities = read_priorities(file, tokens);
    if (!priorities) return tl::unexpected(priorities.error());

    SentencePieceMerges result;
    result.byte_tokens.fill(-1);
    result.symbols.assign(code_points, -1);
    TextIndex index(tokens.texts.size());
    std::vector<TokenId> several;  // tokens of two characters and more
    for (size_t i = 0; i < tokens.texts.size(); ++i) {
        const std::string_view text = tokens.texts[i];
        const TokenId id = static_cast<TokenId>(i);
        const TokenType type = tokens.vocabulary.types[i];
        if (type == TokenType::byte) {
            const auto byte = named_byte(text);
            if (!byte) {
                return broken(tokens, "a byte token is not spelled <0x00> to <0xFF>",
                              "token " + std::to_string(i) + " is " + gguf::quoted(text));
            }
            result.byte_tokens[*byte] = id;
            continue;
        }
        // Only these can be made by text: others would let a document forge a control token.
        if (type != TokenType::normal && type != TokenType::user_defined) continue;
        if (text.empty() || valid_utf8_prefix(text) != text.size()) continue;
        if (!index.insert(text, id)) continue;
        if (first_character(text) == text.size()) {
            result.symbols[code_point(text)] = id;
        } else {
            several.push_back(id);
            if (has_inner_space_mark(text)) result.words_are_independent = false;
        }
    }

    // Characters that are no token can still be merged to one.
    const size_t size = tokens.texts.size();
    for (const TokenId id : several) {
        std::string_view text = tokens.texts[static_cast<size_t>(id)];
        for (size_t bytes; !text.empty(); text.remove_prefix(bytes)) {
            bytes = first_character(text);
            const char32_t character = code_point(text.substr(0, bytes));
            if (result.symbols[character] >= 0) continue;
            result.symbols[character] = static_cast<TokenId>(size + result.extra_characters.size());
            result.extra_characters.push_back(character);
        }
    }

    // Two neighbours merge where their texts joined are a token: every cut of every token.
    const auto symbol_of = [&](std::string_view text) {
        return first_character(text) == text.size() ? result.symbols[code_point(text)]
                                                    : index.find(text);
    };
    size_t cuts = 0;
    result.merges = MergeTable(4 * several.size());
    for (const TokenId id : several) {
        const std::string_view text = tokens.texts[static_cast<size_t>(id)];
        const MergeTable::Merge merge{(*priorities)[static_cast<size_t>(id)], id};
        for (size_t cut = first_character(text); cut < text.size();
             cut += first_character(text.substr(cut))) {
            const TokenId left = symbol_of(text.substr(0, cut));
            if (left < 0) continue;
            const TokenId right = symbol_of(text.substr(cut));
            if (right < 0) continue;
            if (++cuts > most_cuts) {
                return broken(tokens, "the tokens can be merged in too many ways",
                              "more than " + std::to_string(most_cuts) + " pairs of tokens join");
            }
            result.merges.add(left, right, merge);
        }
    }
    return result;
}

}  // namespace granary::text

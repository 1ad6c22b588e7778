// SPDX-License-Identifier: GPL-3.0-or-later
// The characters and pairs of a SentencePiece vocabulary.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/text/merges.h"
#include "engine/text/vocabulary.h"

namespace granary::text {

inline constexpr char32_t space_mark = 0x2581;
inline constexpr std::string_view space_mark_utf8 = "\u2581";

struct SentencePieceMerges {
    // By code point: the token that this character is; or, where it only occurs inside tokens, a
    // number from `size of the vocabulary` on; or -1: no token contains it.
    std::vector<TokenId> symbols;
    std::vector<char32_t> extra_characters;  // those of the numbers behind the vocabulary
    MergeTable merges;
    std::array<TokenId, 256> byte_tokens{};  // -1: none
    // No token has a space mark behind another character, so no merge crosses the front of a
    // word, and words can be merged one by one.
    bool words_are_independent = true;
};

// The byte that "<0x0A>" stands for; nothing where the text is no such name.
std::optional<uint8_t> named_byte(std::string_view text);

// Errors as make_sentence_piece_tokenizer.
Result<SentencePieceMerges> read_sentence_piece_merges(const gguf::File& file,
                                                       const VocabularyFile& tokens);

}  // namespace granary::text

// SPDX-License-Identifier: GPL-3.0-or-later
// What a file says of its tokens, checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/gguf/file.h"
#include "granary/tokenizer.h"

namespace granary::text {

// The numbers of `tokenizer.ggml.token_type`.
enum class TokenType : uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

// A longer token text is refused; the longest of published vocabularies have a few hundred bytes.
inline constexpr size_t longest_token = 1024;
// Four times those of the largest published vocabularies.
inline constexpr size_t largest_vocabulary = size_t{1} << 20;
inline constexpr size_t most_merges = size_t{1} << 21;

struct Vocabulary {
    std::vector<TokenType> types;  // by token
    TokenId bos = -1;              // -1: none
    TokenId eos = -1;
    TokenId unknown = -1;
    bool adds_bos = false;
    std::vector<TokenId> answer_ends;  // ascending

    uint32_t size() const { return static_cast<uint32_t>(types.size()); }
};

struct VocabularyFile {
    Vocabulary vocabulary;
    std::vector<std::string_view> texts;  // by token; they live as long as the file
    std::string path;
};

// Errors: invalid_file where a key is missing or of another type, counts differ, an id is out of
// range, a type is unknown, or a text is too long.
Result<VocabularyFile> read_vocabulary(const gguf::File& file, bool adds_bos_unless_told);

}  // namespace granary::text

// SPDX-License-Identifier: GPL-3.0-or-later
// SentencePiece with scores (tokenizer.ggml.model "llama"): characters are merged to the token of
// the highest score; spaces are written U+2581; what no token spells falls back to byte tokens.
#pragma once

#include "engine/text/vocabulary.h"
#include "granary/tokenizer.h"

namespace granary::text {

// Errors: invalid_file where scores are missing, differ in number from the tokens or are no
// numbers, or where there is neither an unknown token nor one for each byte.
Result<std::shared_ptr<const Tokenizer>> make_sentence_piece_tokenizer(const gguf::File& file);

}  // namespace granary::text

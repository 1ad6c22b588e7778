// SPDX-License-Identifier: GPL-3.0-or-later
// Byte-level byte-pair encoding (tokenizer.ggml.model "gpt2"): a pre-tokeniser cuts text into
// words, the bytes of a word are merged in the order of the file's list of merges.
#pragma once

#include "engine/text/vocabulary.h"
#include "granary/tokenizer.h"

namespace granary::text {

// Errors: unsupported pre-tokeniser; invalid_file where the vocabulary has no token for some byte
// or a merge names a token that is not there.
Result<std::shared_ptr<const Tokenizer>> make_byte_pair_tokenizer(const gguf::File& file);

}  // namespace granary::text

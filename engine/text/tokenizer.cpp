// SPDX-License-Identifier: GPL-3.0-or-later
#include "granary/tokenizer.h"

#include "engine/gguf/file.h"
#include "engine/gguf/printable.h"
#include "engine/text/byte_pair_tokenizer.h"
#include "engine/text/sentence_piece_tokenizer.h"

namespace granary {

Result<std::shared_ptr<const Tokenizer>> make_tokenizer(const gguf::File& file) {
    const auto model = file.get_string("tokenizer.ggml.model");
    if (!model) return tl::unexpected(model.error());
    if (*model == "gpt2") return text::make_byte_pair_tokenizer(file);
    if (*model == "llama") return text::make_sentence_piece_tokenizer(file);
    return fail(ErrorKind::unsupported,
                "this tokeniser model is not supported: " + gguf::quoted(*model, 64),
                gguf::quoted(file.path()) + ": tokenizer.ggml.model; supported: gpt2, llama");
}

}  // namespace granary

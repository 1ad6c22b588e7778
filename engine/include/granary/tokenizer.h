// SPDX-License-Identifier: GPL-3.0-or-later
// Text to token ids and back. Immutable once made: any thread may use it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/error.h"

namespace granary {

namespace gguf { class File; }

using TokenId = int32_t;

class Tokenizer {
  public:
    virtual ~Tokenizer() = default;

    // special: names of control and user-defined tokens in the text become those tokens, and BOS
    // is put in front where the file asks for it. Otherwise neither happens.
    virtual std::vector<TokenId> encode(std::string_view text, bool special) const = 0;

    // `text` so that encode(.., true) reads every name of a special token in it as plain text: each
    // gets a mark (U+FDD0, a noncharacter) in front, which encode drops. Marks that were there
    // before are removed. What a person or document says goes through this before a chat template
    // puts it between real special tokens.
    virtual std::string as_plain_text(std::string_view text) const = 0;

    // The same for an answer that is put back into a conversation: names of tokens that piece()
    // shows stand for themselves, those of control tokens can only be quotations.
    virtual std::string as_answer_text(std::string_view text) const = 0;

    // The bytes of one token; control tokens give nothing unless `special`.
    virtual std::string piece(TokenId token, bool special = false) const = 0;

    virtual uint32_t size() const = 0;
    virtual bool ends_answer(TokenId token) const = 0;  // eos, eot, eom and the like
    virtual TokenId bos() const = 0;                    // -1: none
    virtual TokenId eos() const = 0;                    // -1: none
    virtual bool adds_bos() const = 0;

    // Why text is read slower than it could be, and what that costs, for people; empty: it is not.
    virtual std::string slower() const { return {}; }
};

// Errors: unsupported pre-tokeniser or model (the error names it), a vocabulary that breaks rules.
Result<std::shared_ptr<const Tokenizer>> make_tokenizer(const gguf::File& file);

// Joins pieces to text that is never cut inside a UTF-8 character: bytes that may still become
// one are held back; bytes that cannot are given out as U+FFFD.
class StreamingDetokenizer {
  public:
    explicit StreamingDetokenizer(std::shared_ptr<const Tokenizer> tokenizer);
    std::string push(TokenId token);
    std::string finish();  // what was held back

  private:
    std::shared_ptr<const Tokenizer> tokenizer_;
    std::string held_;
};

}  // namespace granary

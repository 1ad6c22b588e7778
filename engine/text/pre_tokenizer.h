// SPDX-License-Identifier: GPL-3.0-or-later
// Cuts text into the words inside which byte-level BPE merges.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gpu/error.h"

namespace granary::text {

// One of the pre-tokenisers that `tokenizer.ggml.pre` names. Immutable: threads may share it.
class PreTokenizer {
  public:
    // Whether patterns may become machine code. Where they may not, or the system forbids it, the
    // same words are found slower.
    enum class MachineCode : uint8_t { wanted, refused };
    // Errors: unsupported, naming what was found and what is supported.
    static Result<PreTokenizer> make(std::string_view name, const std::string& path,
                                     MachineCode code = MachineCode::wanted);

    // The words of one text in order; together they are the text, byte for byte. Bytes that are
    // not UTF-8 count as symbols. Time is linear in the text. The text must outlive the walk.
    class Words {
      public:
        Words(const PreTokenizer& pre, std::string_view text);
        Words(const Words&) = delete;
        Words& operator=(const Words&) = delete;
        std::optional<std::string_view> next();

      private:
        struct MatchDeleter {
            void operator()(void* data) const;
        };
        const PreTokenizer& pre_;
        std::string_view text_;
        std::string repaired_;      // used where the text is not UTF-8
        std::string_view subject_;  // text_ or repaired_: the same length
        size_t at_ = 0;
        std::unique_ptr<void, MatchDeleter> match_;
    };

    // A word that is itself a token is that token, whatever the merges say.
    bool ignores_merges() const { return ignores_merges_; }
    bool is_machine_code() const { return is_machine_code_; }
    // Whether BOS is put in front where the file does not say.
    bool adds_bos() const { return adds_bos_; }

  private:
    struct CodeDeleter {
        void operator()(void* code) const;
    };
    PreTokenizer() = default;

    std::unique_ptr<void, CodeDeleter> code_;
    bool is_machine_code_ = false;
    bool ignores_merges_ = false;
    bool adds_bos_ = false;
};

}  // namespace granary::text

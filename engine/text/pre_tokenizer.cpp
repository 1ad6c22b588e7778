// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "engine/gguf/printable.h"
#include "engine/text/utf8.h"

namespace granary::text {
namespace {

struct Known {
    std::string_view name;
    const char* pattern;
    bool ignores_merges;
    bool adds_bos;
};

// The patterns are those with which the models were trained, rewritten so that matching cannot
// run away: repeats are possessive wherever giving back could not help, and "white space up to
// its last line break" repeats (blanks, breaks) instead of backing up over the whole run. White
// space is Unicode's property, for PCRE2's own \s also has U+180E.
constexpr Known known[] = {
    {"qwen2",
     R"((?i:'(?:[stmd]|re|ve|ll)))"
     R"(|[^\r\n\p{L}\p{N}]?+\p{L}++)"
     R"(|\p{N})"
     R"(| ?+[^\p{WSpace}\p{L}\p{N}]++[\r\n]*+)"
     R"(|(?:[^\P{WSpace}\r\n]*+[\r\n]++)++)"
     R"(|\p{WSpace}+(?!\P{WSpace})|\p{WSpace}++)",
     false, false},
    // Combining marks belong to words. A mark may also be the one leading character, so that
    // repeat must be able to give it back.
    {"qwen35",
     R"((?i:'(?:[stmd]|re|ve|ll)))"
     R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]++)"
     R"(|\p{N})"
     R"(| ?+[^\p{WSpace}\p{L}\p{M}\p{N}]++[\r\n]*+)"
     R"(|(?:[^\P{WSpace}\r\n]*+[\r\n]++)++)"
     R"(|\p{WSpace}+(?!\P{WSpace})|\p{WSpace}++)",
     false, false},
    {"gpt-2",
     R"('(?:[stmd]|re|ve|ll))"
     R"(| ?+\p{L}++)"
     R"(| ?+\p{N}++)"
     R"(| ?+[^\p{WSpace}\p{L}\p{N}]++)"
     R"(|\p{WSpace}+(?!\P{WSpace})|\p{WSpace}++)",
     false, false},
    {"llama-bpe",
     R"((?i:'(?:[stmd]|re|ve|ll)))"
     R"(|[^\r\n\p{L}\p{N}]?+\p{L}++)"
     R"(|\p{N}{1,3}+)"
     R"(| ?+[^\p{WSpace}\p{L}\p{N}]++[\r\n]*+)"
     R"(|(?:[^\P{WSpace}\r\n]*+[\r\n]++)++)"
     R"(|\p{WSpace}+(?!\P{WSpace})|\p{WSpace}++)",
     true, true},
};

std::string supported_names() {
    std::string names;
    for (const Known& one : known) names += (names.empty() ? "" : ", ") + std::string(one.name);
    return names;
}

// A copy of the same length in which bytes that are no part of a character are a plus sign, which
// every pattern takes for a symbol.
std::string repaired(std::string_view text, size_t valid_prefix) {
    std::string copy(text);
    for (size_t at = valid_prefix; at < text.size();) {
        const Utf8Step step = utf8_step(text.substr(at));
        if (step.kind != Utf8Step::Kind::character) copy.replace(at, step.bytes, step.bytes, '+');
        at += step.bytes;
    }
    return copy;
}

}  // namespace

void PreTokenizer::CodeDeleter::operator()(void* code) const {
    pcre2_code_free(static_cast<pcre2_code*>(code));
}

void PreTokenizer::Words::MatchDeleter::operator()(void* data) const {
    pcre2_match_data_free(static_cast<pcre2_match_data*>(data));
}

Result<PreTokenizer> PreTokenizer::make(std::string_view name, const std::string& path,
                                        MachineCode machine) {
    for (const Known& one : known) {
        if (one.name != name) continue;
        int error = 0;
        PCRE2_SIZE offset = 0;
        pcre2_code* code =
            pcre2_compile(reinterpret_cast<PCRE2_SPTR>(one.pattern), PCRE2_ZERO_TERMINATED,
                          PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &offset, nullptr);
        if (code == nullptr) {
            return fail(ErrorKind::internal, "the pattern of a pre-tokeniser does not compile",
                        std::string(name) + ", at " + std::to_string(offset) + ", PCRE2 error " +
                            std::to_string(error));
        }
        PreTokenizer pre;
        pre.code_.reset(code);
        pre.is_machine_code_ =
            machine == MachineCode::wanted && pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
        pre.ignores_merges_ = one.ignores_merges;
        pre.adds_bos_ = one.adds_bos;
        return pre;
    }
    return fail(ErrorKind::unsupported,
                "this pre-tokeniser is not supported: " + gguf::quoted(name, 64),
                gguf::quoted(path) + ": tokenizer.ggml.pre; supported: " + supported_names());
}

PreTokenizer::Words::Words(const PreTokenizer& pre, std::string_view text)
    : pre_(pre), text_(text), subject_(text), match_(pcre2_match_data_create(1, nullptr)) {
    const size_t valid = valid_utf8_prefix(text);
    if (valid == text.size()) return;
    repaired_ = repaired(text, valid);
    subject_ = repaired_;
}

std::optional<std::string_view> PreTokenizer::Words::next() {
    if (at_ == text_.size()) return std::nullopt;
    const auto* code = static_cast<const pcre2_code*>(pre_.code_.get());
    auto* match = static_cast<pcre2_match_data*>(match_.get());
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(subject_.data());
    // The subject is known to be UTF-8; checking it again for each word would be quadratic.
    const int found =
        match == nullptr ? PCRE2_ERROR_NOMEMORY
        : pre_.is_machine_code_
            ? pcre2_jit_match(code, subject, subject_.size(), at_, 0, match, nullptr)
            : pcre2_match(code, subject, subject_.size(), at_, PCRE2_NO_UTF_CHECK, match, nullptr);
    // Every character begins some alternative and none can back up far, so a match is certain
    // unless PCRE2 itself lacks memory; one character is then a word, so that the walk ends.
    size_t end = found > 0 ? pcre2_get_ovector_pointer(match)[1] : at_;
    if (end <= at_) end = at_ + utf8_step(subject_.substr(at_)).bytes;
    const std::string_view word = text_.substr(at_, end - at_);
    at_ = end;
    return word;
}

}  // namespace granary::text

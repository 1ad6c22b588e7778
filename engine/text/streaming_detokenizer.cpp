// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/utf8.h"
#include "granary/tokenizer.h"

namespace granary {
namespace {

constexpr std::string_view replacement = "\uFFFD";

}  // namespace

StreamingDetokenizer::StreamingDetokenizer(std::shared_ptr<const Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)) {}

std::string StreamingDetokenizer::push(TokenId token) {
    held_ += tokenizer_->piece(token);
    std::string text;
    std::string_view left = held_;
    while (!left.empty()) {
        const text::Utf8Step step = text::utf8_step(left);
        if (step.kind == text::Utf8Step::Kind::incomplete) break;
        const bool whole = step.kind == text::Utf8Step::Kind::character;
        text += whole ? left.substr(0, step.bytes) : replacement;
        left.remove_prefix(step.bytes);
    }
    held_.erase(0, held_.size() - left.size());
    return text;
}

std::string StreamingDetokenizer::finish() {
    const bool cut = !held_.empty();
    held_.clear();
    return cut ? std::string(replacement) : std::string();
}

}  // namespace granary

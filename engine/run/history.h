// SPDX-License-Identifier: GPL-3.0-or-later
// What was said in a conversation and how it was read. Prompt and decode kernels round
// differently, and so does a delta net where it is cut: what is read again must be read as it was,
// or the same conversation would go on with other tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gpu/kernels.h"
#include "granary/tokenizer.h"

namespace granary {

// Which kernels read a token.
enum class TokenKind : uint8_t { prompt, generated };

// Tokens from the end of the span before to `end`, read by one kind of kernels. Between two
// spans of prompt tokens a delta net was cut.
struct Span {
    uint32_t end = 0;
    TokenKind kind = TokenKind::prompt;
    bool operator==(const Span&) const = default;
};

class History {
  public:
    // `grid`: a prompt that is cut at its multiples gives the same numbers as one that is not.
    explicit History(uint32_t grid = gpu::kDeltaCells) : grid_(grid) {}
    // From a file. The ends rise, and the last one is the number of tokens.
    History(uint32_t grid, std::vector<TokenId> tokens, std::vector<Span> spans)
        : grid_(grid), tokens_(std::move(tokens)), spans_(std::move(spans)) {}

    std::span<const TokenId> tokens() const { return tokens_; }
    std::span<const Span> spans() const { return spans_; }
    uint32_t size() const { return static_cast<uint32_t>(tokens_.size()); }

    // How many tokens both begin with.
    uint32_t common(std::span<const TokenId> tokens) const;
    // How all of `tokens` are read: what is in common as it was, the rest as a prompt.
    std::vector<Span> plan(std::span<const TokenId> tokens) const;
    // `tokens` were read in one go at first.. <= size(). Where that is how they were read before,
    // all stays as it is; else it and what stood behind it goes.
    void write(uint32_t first, std::span<const TokenId> tokens, TokenKind kind);
    void truncate(uint32_t size);  // to at most so many tokens

  private:
    bool stands(uint32_t first, std::span<const TokenId> tokens, TokenKind kind) const;

    uint32_t grid_;
    std::vector<TokenId> tokens_;
    std::vector<Span> spans_;
};

}  // namespace granary

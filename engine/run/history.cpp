// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/run/history.h"

#include <algorithm>

namespace granary {
namespace {

// Adds [end of the last span, end) unless it only makes that span longer.
void append(std::vector<Span>& spans, Span span, uint32_t grid) {
    const bool goes_on = !spans.empty() && spans.back().kind == span.kind &&
                         (span.kind == TokenKind::generated || spans.back().end % grid == 0);
    if (goes_on)
        spans.back().end = span.end;
    else
        spans.push_back(span);
}

}  // namespace

uint32_t History::common(std::span<const TokenId> tokens) const {
    const auto most = static_cast<std::ptrdiff_t>(std::min(tokens_.size(), tokens.size()));
    const auto end = std::mismatch(tokens_.begin(), tokens_.begin() + most, tokens.begin()).first;
    return static_cast<uint32_t>(end - tokens_.begin());
}

std::vector<Span> History::plan(std::span<const TokenId> tokens) const {
    const uint32_t same = common(tokens);
    const auto total = static_cast<uint32_t>(tokens.size());
    std::vector<Span> plan;
    uint32_t end = 0;
    for (const Span& span : spans_) {
        // A prompt that goes on otherwise than it did is read without the cut.
        if (end >= same || (span.end > same && span.kind == TokenKind::prompt)) break;
        end = std::min(span.end, same);
        plan.push_back({end, span.kind});
    }
    if (end < total) append(plan, {total, TokenKind::prompt}, grid_);
    return plan;
}

void History::write(uint32_t first, std::span<const TokenId> tokens, TokenKind kind) {
    if (tokens.empty() || stands(first, tokens, kind)) return;
    truncate(first);
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    append(spans_, {size(), kind}, grid_);
}

bool History::stands(uint32_t first, std::span<const TokenId> tokens, TokenKind kind) const {
    const auto end = static_cast<uint32_t>(first + tokens.size());
    if (end > size() || !std::equal(tokens.begin(), tokens.end(), tokens_.begin() + first))
        return false;
    const auto span = std::upper_bound(spans_.begin(), spans_.end(), first,
                                       [](uint32_t cell, const Span& s) { return cell < s.end; });
    // In one span, and cut behind the last token only where a cut makes no difference.
    return span->kind == kind && end <= span->end &&
           (end == span->end || kind == TokenKind::generated || end % grid_ == 0);
}

void History::truncate(uint32_t size) {
    tokens_.resize(std::min<size_t>(size, tokens_.size()));
    while (!spans_.empty() && spans_.back().end > size) {
        const uint32_t begin = spans_.size() > 1 ? spans_[spans_.size() - 2].end : 0;
        if (begin < size) {
            spans_.back().end = size;
            break;
        }
        spans_.pop_back();
    }
}

}  // namespace granary

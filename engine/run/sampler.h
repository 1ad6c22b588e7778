// SPDX-License-Identifier: GPL-3.0-or-later
// Picks the next token from logits. The same logits, history and seed give the same token.
#pragma once

#include <deque>
#include <random>
#include <span>
#include <vector>

#include "engine/run/token_chances.h"
#include "granary/engine.h"

namespace granary {

class Sampler {
  public:
    explicit Sampler(const Sampling& sampling) : sampling_(sampling), random_(sampling.seed) {}

    // Greedy without a penalty: the caller may take the argmax that the device found.
    bool wants_argmax() const {
        return sampling_.temperature <= 0 && sampling_.repeat_penalty == 1;
    }

    // Order: repeat penalty over the last repeat_window tokens (logits above zero are divided by
    // it, others multiplied), top-k, softmax at the temperature, top-p (the smallest set whose
    // probabilities reach p), min-p (those of at least min_p times the best), draw. Among equal
    // logits the lower token comes first; NaN counts as -infinity.
    TokenId pick(std::span<const float> logits);

    // The probability that the last pick, if it was no greedy one, had for this token.
    double chance(TokenId token) const { return chances_.chance(token); }

    // A token of prompt or answer, for the repeat penalty.
    void note(TokenId token);

  private:
    Sampling sampling_;
    std::mt19937_64 random_;
    std::deque<TokenId> recent_;
    std::vector<TokenId> penalised_;  // work space of pick
    TokenChances chances_;            // likewise
};

}  // namespace granary

// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/run/sampler.h"

#include <algorithm>

namespace granary {

void Sampler::note(TokenId token) {
    if (sampling_.repeat_penalty == 1 || sampling_.repeat_window == 0) return;
    recent_.push_back(token);
    if (recent_.size() > sampling_.repeat_window) recent_.pop_front();
}

TokenId Sampler::pick(std::span<const float> logits) {
    chances_.load(logits);
    // Each once, however often it was said.
    penalised_.assign(recent_.begin(), recent_.end());
    std::sort(penalised_.begin(), penalised_.end());
    penalised_.erase(std::unique(penalised_.begin(), penalised_.end()), penalised_.end());
    for (TokenId token : penalised_) {
        if (token < 0 || static_cast<size_t>(token) >= logits.size()) continue;
        const float logit = logits[token], penalty = sampling_.repeat_penalty;
        chances_.change(token, logit > 0 ? logit / penalty : logit * penalty);
    }
    const TokenId best = chances_.best();
    if (sampling_.temperature <= 0 || !chances_.limit(sampling_)) return best;
    // 53 bits of one draw: the standard's distributions differ between libraries, this does not.
    return chances_.draw(static_cast<double>(random_() >> 11) * 0x1p-53);
}

}  // namespace granary

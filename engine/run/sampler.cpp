// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/run/sampler.h"

#include <algorithm>
#include <cmath>

namespace granary {

void Sampler::note(TokenId token) {
    if (sampling_.repeat_penalty == 1 || sampling_.repeat_window == 0) return;
    recent_.push_back(token);
    if (recent_.size() > sampling_.repeat_window) recent_.pop_front();
}

TokenId Sampler::pick(std::span<const float> logits) {
    candidates_.clear();
    for (size_t i = 0; i < logits.size(); ++i)
        candidates_.push_back({logits[i], static_cast<TokenId>(i)});
    // Each once, however often it was said.
    penalised_.assign(recent_.begin(), recent_.end());
    std::sort(penalised_.begin(), penalised_.end());
    penalised_.erase(std::unique(penalised_.begin(), penalised_.end()), penalised_.end());
    for (TokenId token : penalised_) {
        if (token < 0 || static_cast<size_t>(token) >= candidates_.size()) continue;
        float& logit = candidates_[token].first;
        logit = logit > 0 ? logit / sampling_.repeat_penalty : logit * sampling_.repeat_penalty;
    }
    // A damaged model or an odd penalty may give NaN, which no order holds: such a token is never
    // chosen over a number.
    for (auto& [logit, token] : candidates_)
        if (std::isnan(logit)) logit = -INFINITY;
    const auto better = [](const auto& a, const auto& b) {
        return a.first > b.first || (a.first == b.first && a.second < b.second);
    };
    if (sampling_.temperature <= 0)
        return std::min_element(candidates_.begin(), candidates_.end(), better)->second;

    size_t kept = candidates_.size();
    const bool takes_k = sampling_.top_k > 0 && sampling_.top_k < kept;
    // A draw from all of them needs no order, and ordering a large vocabulary takes milliseconds.
    const bool ordered = takes_k || sampling_.top_p < 1 || sampling_.min_p > 0;
    if (takes_k) {
        kept = sampling_.top_k;
        std::partial_sort(candidates_.begin(), candidates_.begin() + kept, candidates_.end(),
                          better);
        candidates_.resize(kept);
    } else if (ordered) {
        std::sort(candidates_.begin(), candidates_.end(), better);
    }
    const auto [best, best_token] =
        ordered ? candidates_.front()
                : *std::min_element(candidates_.begin(), candidates_.end(), better);
    if (!std::isfinite(best)) return best_token;
    double total = 0;
    for (auto& [value, token] : candidates_) {
        value = std::exp((value - best) / sampling_.temperature);
        total += value;
    }
    if (sampling_.top_p < 1) {
        double sum = 0;
        for (size_t i = 0; i < kept; ++i) {
            sum += candidates_[i].first;
            if (sum >= sampling_.top_p * total) {
                kept = i + 1;
                break;
            }
        }
    }
    if (sampling_.min_p > 0)
        while (kept > 1 && candidates_[kept - 1].first < sampling_.min_p * candidates_[0].first)
            --kept;
    total = 0;
    for (size_t i = 0; i < kept; ++i) total += candidates_[i].first;
    // 53 bits of one draw: the standard's distributions differ between libraries, this does not.
    double point = static_cast<double>(random_() >> 11) * 0x1p-53 * total;
    TokenId last = best_token;  // drawn where rounding leaves the point at the end
    for (size_t i = 0; i < kept; ++i) {
        const auto [weight, token] = candidates_[i];
        if (weight > 0) last = token;
        point -= weight;
        if (point < 0) return token;
    }
    return last;
}

}  // namespace granary

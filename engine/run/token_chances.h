// SPDX-License-Identifier: GPL-3.0-or-later
// The probabilities of all tokens under the limits of a Sampling, and a draw from them. The
// vocabulary is never sorted: a limit is found as the last candidate that it keeps.
//
// A token's weight is exp((logit - best) / temperature), with a relative error below 2e-5 and
// for weights above 1e-9 below 5e-6; one under 2^-125 of the best is zero. All sums have an order
// that no width of vectors changes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "granary/engine.h"

namespace granary {

class TokenChances {
  public:
    // Copies at least one logit; NaN counts as -infinity.
    void load(std::span<const float> logits);
    // After load(), before best().
    void change(TokenId token, float logit);

    // The token with the largest logit, the lowest among equals.
    TokenId best();

    // After best(): applies temperature (above 0) and limits; Sampler::pick has their order.
    // False if the largest logit is infinite: then only best() may be chosen.
    bool limit(const Sampling& sampling);

    // After limit(): the token that `point`, from 0 to below 1, falls on where tokens lie in
    // order of their numbers.
    TokenId draw(double point) const;
    double chance(TokenId token) const;  // for tests

  private:
    static constexpr size_t kBuckets = 2048;
    struct Candidate {
        float logit;
        TokenId token;
    };
    static bool is_better(const Candidate& a, const Candidate& b) {
        return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
    }

    void raise_floor(float exponent);
    void raise_floor_to_min_p(float min_p);
    void weigh_all();
    void sum_up();
    void gather_largest(size_t count);
    bool cut_at(double target, double sum);
    void cut_by_buckets(double target);
    void drop_below_cut();

    std::vector<float> logits_;   // whole blocks, filled with -infinity
    std::vector<float> largest_;  // of each block
    std::vector<float> weights_;  // of blocks whose sum is not zero
    std::vector<double> sums_;    // of the weights of each block
    double total_ = 0;            // the sum of sums_
    float best_ = 0;
    float steepness_ = 0;  // weight = 2^((logit - best) * steepness)
    float floor_ = 0;      // smaller logits are not kept
    float min_p_ = 0;      // nor are smaller weights
    Candidate cut_{};      // the last one that top-k and top-p keep
    std::vector<Candidate> candidates_;
    std::vector<float> scratch_;
    std::array<double, kBuckets> buckets_;
};

}  // namespace granary

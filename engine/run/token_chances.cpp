// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/run/token_chances.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

namespace granary {
namespace {

constexpr size_t kBlock = 64;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kLeastExponent = -125;

// The loops over a block have a fixed length and write where they do not read, so that compilers
// make vectors of them at -O2.

// 2^x for x from kLeastExponent to 0, relative error below 4e-7, exactly 1 for 0; any other x
// gives a number without meaning.
inline float power_of_two(float x) {
    const float shifted = x + 0x1.8p23f;  // its low bits are x rounded to a whole number
    const float f = x - (shifted - 0x1.8p23f);
    const float ff = f * f;  // (2^f - 1) / f through Chebyshev's points of -0.5 to 0.5
    const float y = (1 + 0.693147182f * f) + ff * ((0.240223497f + 0.0555038117f * f) +
                                                   ff * (0.00966636837f + 0.00133813021f * f));
    return std::bit_cast<float>(std::bit_cast<uint32_t>(y) +
                                (std::bit_cast<uint32_t>(shifted) << 23));
}

// Combines the values of a block in a fixed tree of halves.
template <typename Combine>
inline float fold(const float* values, Combine combine) {
    float half[kBlock / 2];
    for (size_t i = 0; i < kBlock / 2; ++i) half[i] = combine(values[i], values[i + kBlock / 2]);
    for (size_t i = 0; i < kBlock / 4; ++i) half[i] = combine(half[i], half[i + kBlock / 4]);
    for (size_t i = 0; i < kBlock / 8; ++i) half[i] = combine(half[i], half[i + kBlock / 8]);
    for (size_t i = 0; i < kBlock / 16; ++i) half[i] = combine(half[i], half[i + kBlock / 16]);
    for (size_t i = 1; i < kBlock / 16; ++i) half[0] = combine(half[0], half[i]);
    return half[0];
}

void copy_numbers(const float* from, float* __restrict to) {
    for (size_t i = 0; i < kBlock; ++i) to[i] = from[i] == from[i] ? from[i] : -kInfinity;
}

// What equals `logit` behind place `last`, which may be before the block, is taken out.
void drop_equals(float* logits, float logit, int last) {
    for (int i = 0; i < static_cast<int>(kBlock); ++i)
        logits[i] = ((logits[i] == logit) & (i > last)) ? -kInfinity : logits[i];
}

void weigh(const float* logits, float best, float steepness, float* __restrict weights) {
    for (size_t i = 0; i < kBlock; ++i) weights[i] = power_of_two((logits[i] - best) * steepness);
}

// Numbers of equal spans of 1 / scale below the best logit; what lies further is in the last one.
void place(const float* logits, float best, float scale, float last, int* __restrict buckets) {
    for (size_t i = 0; i < kBlock; ++i) {
        const float at = (best - logits[i]) * scale;
        buckets[i] = static_cast<int>(at < last ? at : last);
    }
}

}  // namespace

void TokenChances::load(std::span<const float> logits) {
    const size_t whole = logits.size() / kBlock, tail = logits.size() % kBlock;
    const size_t blocks = whole + (tail > 0);
    logits_.resize(blocks * kBlock);
    weights_.resize(blocks * kBlock);
    largest_.resize(blocks);
    sums_.resize(blocks);
    scratch_.resize(blocks);
    candidates_.reserve(blocks * kBlock);
    for (size_t i = 0; i < whole; ++i) copy_numbers(&logits[i * kBlock], &logits_[i * kBlock]);
    if (tail > 0) {
        float last[kBlock];
        std::fill(std::copy_n(logits.end() - tail, tail, last), last + kBlock, -kInfinity);
        copy_numbers(last, &logits_[whole * kBlock]);
    }
}

void TokenChances::change(TokenId token, float logit) {
    logits_[token] = std::isnan(logit) ? -kInfinity : logit;
}

TokenId TokenChances::best() {
    for (size_t i = 0; i < largest_.size(); ++i)
        largest_[i] = fold(&logits_[i * kBlock], [](float a, float b) { return a > b ? a : b; });
    const auto first = std::max_element(largest_.begin(), largest_.end());
    best_ = *first;
    const auto from = logits_.begin() + (first - largest_.begin()) * kBlock;
    return static_cast<TokenId>(std::find(from, logits_.end(), best_) - logits_.begin());
}

bool TokenChances::limit(const Sampling& sampling) {
    if (!std::isfinite(best_)) return false;
    steepness_ = std::min(std::numbers::log2e_v<float> / sampling.temperature, kLargest);
    min_p_ = 0;
    floor_ = -kInfinity;
    raise_floor(kLeastExponent);
    const bool takes_k = sampling.top_k > 0 && sampling.top_k < logits_.size();
    const bool takes_p = sampling.top_p < 1;
    const bool takes_few = takes_k && sampling.top_k <= largest_.size();
    if (takes_few) {
        gather_largest(sampling.top_k);
        cut_ = candidates_.back();
        drop_below_cut();
    } else if (takes_k) {
        for (size_t i = 0; i < logits_.size(); ++i) weights_[i] = logits_[i] >= floor_ ? 1 : 0;
        cut_by_buckets(sampling.top_k);
        drop_below_cut();
    }
    if (!takes_p) raise_floor_to_min_p(sampling.min_p);
    weigh_all();
    if (takes_p) {
        sum_up();
        if (!takes_few) gather_largest(kBlock);  // as a rule these reach p
        const double target = sampling.top_p * total_;
        if (!cut_at(target, 0)) cut_by_buckets(target);
        drop_below_cut();
        raise_floor_to_min_p(sampling.min_p);
    }
    sum_up();
    return true;
}

// No logit whose weight is 2^exponent lies below, so that whole blocks can be passed over; the
// weights themselves decide at the border.
void TokenChances::raise_floor(float exponent) {
    floor_ = std::max(floor_, best_ + (exponent - 0.01f) / steepness_);
}

void TokenChances::raise_floor_to_min_p(float min_p) {
    min_p_ = min_p;
    if (min_p > 0) raise_floor(std::max(std::log2(min_p), kLeastExponent));
}

// The weights of all blocks that reach the floor.
void TokenChances::weigh_all() {
    for (size_t i = 0; i < sums_.size(); ++i)
        if (largest_[i] >= floor_)
            weigh(&logits_[i * kBlock], best_, steepness_, &weights_[i * kBlock]);
}

// Makes the weights of what is not kept zero.
void TokenChances::sum_up() {
    const float floor = floor_, min_p = min_p_;
    total_ = 0;
    for (size_t block = 0; block < sums_.size(); ++block) {
        sums_[block] = 0;
        if (largest_[block] < floor) continue;
        const float* logits = &logits_[block * kBlock];
        float* weights = &weights_[block * kBlock];
        float kept[kBlock];
        for (size_t i = 0; i < kBlock; ++i)
            kept[i] = ((logits[i] >= floor) & (weights[i] >= min_p)) ? weights[i] : 0;
        std::copy(kept, kept + kBlock, weights);
        sums_[block] = fold(kept, std::plus<>());
        total_ += sums_[block];
    }
}

// The `count` best candidates, the best first. As many blocks have a logit at or above the
// count-th largest of their maxima, so no smaller one can be among them.
void TokenChances::gather_largest(size_t count) {
    float least = -kInfinity;
    if (count <= largest_.size()) {
        scratch_ = largest_;
        std::nth_element(scratch_.begin(), scratch_.begin() + (count - 1), scratch_.end(),
                         std::greater<>());
        least = scratch_[count - 1];
    }
    least = std::max(least, floor_);
    candidates_.clear();
    for (size_t block = 0; block < largest_.size(); ++block) {
        if (largest_[block] < least) continue;
        for (size_t i = block * kBlock; i < (block + 1) * kBlock; ++i)
            if (logits_[i] >= least) candidates_.push_back({logits_[i], static_cast<TokenId>(i)});
    }
    if (candidates_.size() > count) {
        std::nth_element(candidates_.begin(), candidates_.begin() + count, candidates_.end(),
                         is_better);
        candidates_.resize(count);
    }
    std::sort(candidates_.begin(), candidates_.end(), is_better);
}

// Cuts where the candidates' weights and the sum of those before them reach the target, else
// after the last candidate; says whether it was reached.
bool TokenChances::cut_at(double target, double sum) {
    for (const Candidate& one : candidates_) {
        cut_ = one;
        sum += weights_[one.token];
        if (sum >= target) return true;
    }
    return false;
}

// The same over all tokens; cuts none if all do not reach the target. Sums their weights by equal
// spans of logits, then orders only those of the span in which the target is reached.
void TokenChances::cut_by_buckets(double target) {
    const float best = best_, floor = floor_;
    float lowest = best;
    for (size_t block = 0; block < largest_.size(); ++block) {
        if (largest_[block] < floor) continue;
        const float* logits = &logits_[block * kBlock];
        float kept[kBlock];
        for (size_t i = 0; i < kBlock; ++i) kept[i] = logits[i] >= floor ? logits[i] : best;
        lowest = std::min(lowest, fold(kept, [](float a, float b) { return a < b ? a : b; }));
    }
    constexpr float kLast = kBuckets - 1;
    const float scale = lowest < best ? std::min(kLast / (best - lowest), kLargest) : 0;
    buckets_.fill(0);
    int buckets[kBlock];
    for (size_t block = 0; block < largest_.size(); ++block) {
        if (largest_[block] < floor) continue;
        place(&logits_[block * kBlock], best, scale, kLast, buckets);
        const float* weights = &weights_[block * kBlock];
        for (size_t i = 0; i < kBlock; ++i) buckets_[buckets[i]] += weights[i];
    }
    int border = 0;
    double sum = 0;  // of the buckets before the border
    while (border < static_cast<int>(kBuckets) && sum + buckets_[border] < target)
        sum += buckets_[border++];
    candidates_.clear();
    for (size_t block = 0; block < largest_.size(); ++block) {
        if (largest_[block] < floor) continue;
        place(&logits_[block * kBlock], best, scale, kLast, buckets);
        int found = 0;
        for (size_t i = 0; i < kBlock; ++i) found += buckets[i] == border;
        for (size_t i = 0; found > 0 && i < kBlock; ++i) {
            const size_t token = block * kBlock + i;
            if (buckets[i] == border && logits_[token] >= floor)
                candidates_.push_back({logits_[token], static_cast<TokenId>(token)});
        }
    }
    // Equal logits, of which a span may have all, are in order already.
    if (!std::is_sorted(candidates_.begin(), candidates_.end(), is_better))
        std::sort(candidates_.begin(), candidates_.end(), is_better);
    cut_ = {-kInfinity, 0};
    cut_at(target, sum);
}

// Raises the floor to the cut and takes out what comes after it among equals.
void TokenChances::drop_below_cut() {
    floor_ = std::max(floor_, cut_.logit);
    for (size_t block = cut_.token / kBlock; block < largest_.size(); ++block)
        if (largest_[block] >= cut_.logit)
            drop_equals(&logits_[block * kBlock], cut_.logit,
                        cut_.token - static_cast<int>(block * kBlock));
}

TokenId TokenChances::draw(double point) const {
    point *= total_;
    size_t block = sums_.size();
    TokenId last = 0;  // drawn where rounding leaves the point at the end
    for (size_t i = 0; i < sums_.size(); ++i) {
        if (sums_[i] == 0) continue;
        if (block < sums_.size()) {
            if (point < sums_[block]) break;
            point -= sums_[block];
        }
        block = i;
    }
    for (size_t i = block * kBlock; i < (block + 1) * kBlock; ++i) {
        if (weights_[i] == 0) continue;
        last = static_cast<TokenId>(i);
        point -= weights_[i];
        if (point < 0) break;
    }
    return last;
}

double TokenChances::chance(TokenId token) const {
    return sums_[token / kBlock] > 0 ? weights_[token] / total_ : 0;
}

}  // namespace granary

// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/run/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>

namespace granary {
namespace {

std::map<TokenId, int> draw(const Sampling& sampling, const std::vector<float>& logits, int n) {
    Sampler sampler(sampling);
    std::map<TokenId, int> counts;
    for (int i = 0; i < n; ++i) ++counts[sampler.pick(logits)];
    return counts;
}

TEST(Sampler, GreedyTakesTheBestAndTheLowestAmongEquals) {
    Sampler sampler({});
    EXPECT_EQ(sampler.pick(std::vector<float>{1, 3, 3, 2}), 1);
    EXPECT_EQ(sampler.pick(std::vector<float>{NAN, -5, NAN}), 1);
    EXPECT_EQ(sampler.pick(std::vector<float>{NAN, NAN}), 0);
}

TEST(Sampler, DrawsWithTheSoftmaxsFrequencies) {
    Sampling sampling;
    sampling.temperature = 1;
    sampling.seed = 7;
    auto counts = draw(sampling, {std::log(1.0f), std::log(2.0f), std::log(7.0f)}, 20000);
    EXPECT_NEAR(counts[0], 2000, 200);
    EXPECT_NEAR(counts[1], 4000, 250);
    EXPECT_NEAR(counts[2], 14000, 300);
    sampling.temperature = 0.5f;  // squares the odds: 1 : 4 : 49
    counts = draw(sampling, {std::log(1.0f), std::log(2.0f), std::log(7.0f)}, 20000);
    EXPECT_NEAR(counts[2], 20000 * 49 / 54, 300);
}

TEST(Sampler, LimitsKeepWhatTheySay) {
    const std::vector<float> logits{std::log(0.5f), std::log(0.3f), std::log(0.15f),
                                    std::log(0.05f)};
    Sampling sampling;
    sampling.temperature = 1;
    sampling.top_k = 2;
    EXPECT_EQ(draw(sampling, logits, 2000).size(), 2u);
    sampling.top_k = 0;
    sampling.top_p = 0.75f;  // 0.5 + 0.3 reach it
    EXPECT_EQ(draw(sampling, logits, 2000).size(), 2u);
    sampling.top_p = 1;
    sampling.min_p = 0.25f;  // at least 0.125
    EXPECT_EQ(draw(sampling, logits, 2000).size(), 3u);
    sampling.top_p = 0;  // never less than one
    EXPECT_EQ(draw(sampling, logits, 2000).size(), 1u);
}

TEST(Sampler, APenaltyThatMakesNoNumberStillGivesAToken) {
    for (const float penalty : {NAN, INFINITY, 0.0f, -1.0f}) {
        for (const float temperature : {0.0f, 1.0f}) {
            Sampling sampling;
            sampling.repeat_penalty = penalty;
            sampling.temperature = temperature;
            Sampler sampler(sampling);
            std::vector<float> logits(200);
            for (int i = 0; i < 200; ++i) {
                logits[i] = static_cast<float>(i % 7) - 3;
                if (i < 60) sampler.note(i);
            }
            logits[5] = -INFINITY;
            const TokenId token = sampler.pick(logits);
            EXPECT_TRUE(token >= 0 && token < 200) << penalty << " " << temperature;
        }
    }
}

TEST(Sampler, RepeatPenaltyForgetsAfterItsWindow) {
    Sampling sampling;
    sampling.repeat_penalty = 2;
    sampling.repeat_window = 2;
    Sampler sampler(sampling);
    const std::vector<float> logits{4, 3, -1};
    EXPECT_FALSE(sampler.wants_argmax());
    EXPECT_EQ(sampler.pick(logits), 0);
    sampler.note(0);
    EXPECT_EQ(sampler.pick(logits), 1);  // 4 / 2 < 3
    sampler.note(2);
    sampler.note(2);
    EXPECT_EQ(sampler.pick(logits), 0);
}

TEST(Sampler, SameSeedSameTokens) {
    Sampling sampling;
    sampling.temperature = 1.5f;
    sampling.seed = 99;
    const std::vector<float> logits{1, 2, 3, 2, 1};
    Sampler a(sampling), b(sampling);
    for (int i = 0; i < 200; ++i) EXPECT_EQ(a.pick(logits), b.pick(logits));
}

// What Sampler::pick says it does, by sorting everything, in double. Where rounding may decide
// what is kept, the sampler does.
void expect_as_defined(const Sampling& sampling, std::vector<float> logits,
                       const std::vector<TokenId>& said) {
    Sampler sampler(sampling);
    for (const TokenId token : said) sampler.note(token);
    const TokenId picked = sampler.pick(logits);

    const size_t n = logits.size();
    for (const TokenId token : std::set<TokenId>(said.begin(), said.end()))
        logits[token] = logits[token] > 0 ? logits[token] / sampling.repeat_penalty
                                          : logits[token] * sampling.repeat_penalty;
    for (float& logit : logits)
        if (std::isnan(logit)) logit = -INFINITY;
    std::vector<TokenId> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
    const double best = logits[order[0]];
    if (sampling.temperature == 0 || std::isinf(best)) {
        EXPECT_EQ(picked, order[0]);
        return;
    }
    const size_t k = sampling.top_k > 0 ? std::min<size_t>(sampling.top_k, n) : n;
    std::vector<double> weight(n);
    double total = 0;
    for (size_t rank = 0; rank < n; ++rank) {
        weight[rank] = std::exp((logits[order[rank]] - best) / sampling.temperature);
        if (rank < k) total += weight[rank];
    }
    constexpr double kSlack = 1e-5;  // of sums and weights
    double sum = 0, kept_sum = 0;
    std::vector<double> chance(n);
    size_t wrong = 0;
    for (size_t rank = 0; rank < n; ++rank) {
        chance[rank] = sampler.chance(order[rank]);
        const bool kept = chance[rank] > 0;
        if (kept) kept_sum += weight[rank];
        const bool may =
            rank < k && weight[rank] > 2e-38 &&
            (sampling.top_p == 1 || rank == 0 || sum < (sampling.top_p + kSlack) * total) &&
            weight[rank] >= sampling.min_p * (1 - kSlack);
        const bool must =
            rank < k && weight[rank] > 3e-38 &&
            (sampling.top_p == 1 || rank == 0 || sum < (sampling.top_p - kSlack) * total) &&
            (weight[rank] >= sampling.min_p * (1 + kSlack) || weight[rank] == 1);
        wrong += (kept && !may) || (must && !kept);
        // Equals are kept from the lowest token on.
        wrong += kept && rank > 0 && weight[rank] == weight[rank - 1] && chance[rank - 1] == 0 &&
                 logits[order[rank]] == logits[order[rank - 1]];
        sum += weight[rank];
    }
    for (size_t rank = 0; rank < n; ++rank) {
        const double expected = chance[rank] > 0 ? weight[rank] / kept_sum : 0;
        wrong += std::abs(chance[rank] - expected) > 3e-5 * expected;
    }
    EXPECT_EQ(wrong, 0u);
    // The token drawn is where the generator's point falls among tokens in their order.
    double point = static_cast<double>(std::mt19937_64(sampling.seed)() >> 11) * 0x1p-53;
    for (TokenId token = 0; token < picked; ++token) point -= sampler.chance(token);
    EXPECT_GT(sampler.chance(picked), 0);
    EXPECT_GT(point, -1e-6);
    EXPECT_LT(point, sampler.chance(picked) + 1e-6);
}

std::vector<float> random_logits(size_t n, std::mt19937_64& random) {
    std::normal_distribution<float> normal;
    const float spread = std::array{0.0f, 1e-6f, 0.3f, 3.0f, 40.0f, 1e30f}[random() % 6];
    const float middle = std::array{0.0f, -20.0f, 5.0f}[random() % 3];
    const bool ties = random() % 3 == 0, odd = random() % 4 == 0, peaked = random() % 2 == 0;
    std::vector<float> logits(n);
    for (float& logit : logits) {
        logit = middle + spread * normal(random);
        if (ties) logit = std::round(logit);
        if (odd && random() % 8 == 0)
            logit = std::array{NAN, -INFINITY, -NAN, -0.0f,
                               random() % n == 0 ? INFINITY : 0.0f}[random() % 5];
    }
    for (size_t i = 0; peaked && i < 5; ++i) logits[random() % n] = middle + 9 + i * 2 + spread;
    return logits;
}

void expect_as_defined(size_t n, size_t cases, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (size_t i = 0; i < cases && !testing::Test::HasFailure(); ++i) {
        const std::vector<float> logits = random_logits(n > 0 ? n : 1 + random() % 300, random);
        Sampling sampling;
        sampling.temperature =
            std::array{0.0f, 1e-3f, 0.3f, 0.7f, 1.0f, 2.0f, 100.0f}[random() % 7];
        sampling.top_k = std::array{0u, 0u, 1u, 2u, 40u, 300u, 5000u, 1u << 30}[random() % 8];
        sampling.top_p = std::array{1.0f, 1.0f, 0.0f, 0.3f, 0.9f, 0.95f, 0.9999999f}[random() % 7];
        sampling.min_p = std::array{0.0f, 0.0f, 1e-30f, 0.05f, 0.5f, 1.0f}[random() % 6];
        sampling.repeat_penalty = std::array{1.0f, 1.1f, 0.1f, 10.0f}[random() % 4];
        sampling.repeat_window = 64;
        sampling.seed = random();
        std::vector<TokenId> said(sampling.repeat_penalty == 1 ? 0 : random() % 65);
        for (TokenId& token : said) token = static_cast<TokenId>(random() % logits.size());
        SCOPED_TRACE(testing::Message()
                     << "case " << i << " n " << logits.size() << " T " << sampling.temperature
                     << " k " << sampling.top_k << " p " << sampling.top_p << " min "
                     << sampling.min_p << " penalty " << sampling.repeat_penalty);
        expect_as_defined(sampling, logits, said);
    }
}

TEST(Sampler, KeepsAndWeighsAsDefined) {
    expect_as_defined(0, 20000, 1);
}
TEST(Sampler, KeepsAndWeighsAsDefinedInALargeVocabulary) {
    expect_as_defined(151936, 60, 2);
}

}  // namespace
}  // namespace granary

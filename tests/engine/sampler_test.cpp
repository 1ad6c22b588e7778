// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/run/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

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

}  // namespace
}  // namespace granary

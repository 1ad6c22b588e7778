// SPDX-License-Identifier: GPL-3.0-or-later
// The pace of a machine, from predicted and real seconds, and what is left of a schedule.
#include "engine/run/pace.h"

#include <gtest/gtest.h>

#include "engine/memory/schedule.h"

namespace granary {
namespace {

const Rates kRates{1e9, 1e9, 1e9, 2e9, 3e9, 3e9, 4e9, 5e9, 6e9, 1e-5};

TEST(Pace, KnowsNothingAtFirst) {
    const Pace pace;
    EXPECT_FALSE(pace.knows_reading());
    EXPECT_EQ(pace.corrected(kRates), kRates);
}

// Attention and the rest are told apart once prompts are long enough.
TEST(Pace, FindsBothFactorsOfReading) {
    Pace pace;
    for (int chunk = 0; chunk < 8; ++chunk)
        pace.add_chunk(1.0, 0.2 * chunk, 2 * 1.0 + 3 * 0.2 * chunk);
    ASSERT_TRUE(pace.knows_reading());
    const Rates here = pace.corrected(kRates);
    EXPECT_NEAR(here.products, kRates.products / 2, 1e-6 * kRates.products);
    EXPECT_NEAR(here.link, kRates.link / 2, 1e-6 * kRates.link);
    EXPECT_NEAR(here.attention, kRates.attention / 3, 1e-6 * kRates.attention);
    EXPECT_NEAR(here.weights, kRates.weights / 2, 1e-6 * kRates.weights);  // the best guess
}

TEST(Pace, OneFactorServesWhileTheyRiseTogether) {
    Pace pace;
    for (int i = 0; i < 5; ++i) pace.add_chunk(1, 0.1, 2.2);
    const Rates here = pace.corrected(kRates);
    EXPECT_NEAR(here.products, kRates.products / 2, 1e-6 * kRates.products);
    EXPECT_NEAR(here.attention, kRates.attention / 2, 1e-6 * kRates.attention);
}

// Noise must never make a rate negative or boundless.
TEST(Pace, AnImplausibleFitIsNotTaken) {
    Pace pace;
    pace.add_chunk(1, 0, 5);
    pace.add_chunk(1, 2, 1);  // attention would give time back
    const Rates here = pace.corrected(kRates);
    for (const double rate : {here.products, here.attention, here.link})
        EXPECT_TRUE(rate > 1e7 && rate < 1e11) << rate;
    pace.add_chunk(0, 0, 1);
    pace.add_chunk(1, 1, 0);
    pace.add_answer(0, 1);
    EXPECT_EQ(pace.corrected(kRates), here);
}

TEST(Pace, AnswersHaveTheirOwnFactorAndOldOnesFade) {
    Pace pace;
    pace.add_chunk(1, 0.1, 2.2);
    for (int i = 0; i < 5; ++i) pace.add_answer(1, 1);
    EXPECT_NEAR(pace.corrected(kRates).weights, kRates.weights, 1e-6 * kRates.weights);
    EXPECT_NEAR(pace.corrected(kRates).products, kRates.products / 2, 1e-6 * kRates.products);
    for (int i = 0; i < 60; ++i) pace.add_answer(1, 4);
    const Rates here = pace.corrected(kRates);
    EXPECT_NEAR(here.weights, kRates.weights / 4, 0.01 * kRates.weights);
    EXPECT_NEAR(here.cells, kRates.cells / 4, 0.01 * kRates.cells);
    EXPECT_NEAR(here.layer, kRates.layer * 4, 0.1 * kRates.layer);
}

TEST(Schedule, WhatIsLeftOfIt) {
    const std::vector<ScheduledChunks> schedule{{100, 512}, {1124, 256}, {1636, 64}};
    EXPECT_EQ(rest_of(schedule, 100), schedule);
    EXPECT_EQ(rest_of(schedule, 612),
              (std::vector<ScheduledChunks>{{612, 512}, {1124, 256}, {1636, 64}}));
    EXPECT_EQ(rest_of(schedule, 1124), (std::vector<ScheduledChunks>{{1124, 256}, {1636, 64}}));
    EXPECT_EQ(rest_of(schedule, 1700), (std::vector<ScheduledChunks>{{1700, 64}}));
}

}  // namespace
}  // namespace granary

// SPDX-License-Identifier: GPL-3.0-or-later
// How a conversation was read, and where it is worth a checkpoint: pure bookkeeping.
#include "engine/run/history.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "engine/run/checkpoint.h"

namespace granary::test {
namespace {

constexpr auto kPrompt = TokenKind::prompt;
constexpr auto kGenerated = TokenKind::generated;

std::vector<TokenId> count_up(uint32_t from, uint32_t to) {
    std::vector<TokenId> tokens(to - from);
    std::iota(tokens.begin(), tokens.end(), static_cast<TokenId>(from));
    return tokens;
}
std::vector<TokenId> operator+(std::vector<TokenId> a, const std::vector<TokenId>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}
std::vector<Span> spans(const History& history) {
    return {history.spans().begin(), history.spans().end()};
}

// A prompt of 150, an answer of 10, a prompt of 50, an answer of 20.
History two_turns() {
    History history;
    history.write(0, count_up(0, 128), kPrompt);
    history.write(128, count_up(128, 150), kPrompt);
    for (uint32_t i = 150; i < 160; ++i) history.write(i, count_up(i, i + 1), kGenerated);
    history.write(160, count_up(160, 192), kPrompt);
    history.write(192, count_up(192, 210), kPrompt);
    history.write(210, count_up(210, 218), kGenerated);
    history.write(218, count_up(218, 230), kGenerated);
    return history;
}

TEST(History, JoinsWhatIsReadAlike) {
    EXPECT_EQ(
        spans(two_turns()),
        (std::vector<Span>{{150, kPrompt}, {160, kGenerated}, {210, kPrompt}, {230, kGenerated}}));
}

TEST(History, APromptThatWasCutOffTheGridStaysCut) {
    History history;
    history.write(0, count_up(0, 150), kPrompt);
    history.write(150, count_up(150, 300), kPrompt);
    const std::vector<Span> cut{{150, kPrompt}, {300, kPrompt}};
    EXPECT_EQ(spans(history), cut);
    EXPECT_EQ(history.plan(count_up(0, 400)),
              (std::vector<Span>{{150, kPrompt}, {300, kPrompt}, {400, kPrompt}}));
    // Attention knows no cuts.
    History attention(1);
    attention.write(0, count_up(0, 150), kPrompt);
    attention.write(150, count_up(150, 300), kPrompt);
    EXPECT_EQ(spans(attention), (std::vector<Span>{{300, kPrompt}}));
}

TEST(History, PlansWhatIsInCommonAsItWas) {
    const History history = two_turns();
    const std::vector<TokenId> other(40, 9999);
    // All of it and more; a cut inside an answer; inside a prompt, which is then one prompt.
    EXPECT_EQ(
        history.plan(count_up(0, 230) + other),
        (std::vector<Span>{
            {150, kPrompt}, {160, kGenerated}, {210, kPrompt}, {230, kGenerated}, {270, kPrompt}}));
    EXPECT_EQ(history.plan(count_up(0, 155) + other),
              (std::vector<Span>{{150, kPrompt}, {155, kGenerated}, {195, kPrompt}}));
    EXPECT_EQ(history.plan(count_up(0, 155)),
              (std::vector<Span>{{150, kPrompt}, {155, kGenerated}}));
    EXPECT_EQ(history.plan(count_up(0, 140) + other), (std::vector<Span>{{180, kPrompt}}));
    EXPECT_EQ(history.plan(count_up(0, 170) + other),
              (std::vector<Span>{{150, kPrompt}, {160, kGenerated}, {210, kPrompt}}));
    EXPECT_EQ(history.plan(count_up(0, 150)), (std::vector<Span>{{150, kPrompt}}));
    EXPECT_EQ(history.plan(count_up(0, 150) + other),
              (std::vector<Span>{{150, kPrompt}, {190, kPrompt}}));
    EXPECT_EQ(history.plan(other), (std::vector<Span>{{40, kPrompt}}));
    EXPECT_EQ(History().plan(other), (std::vector<Span>{{40, kPrompt}}));
}

TEST(History, WhatIsReadAgainTheSameWayKeepsWhatStoodBehind) {
    History history = two_turns();
    const std::vector<Span> before = spans(history);
    history.write(0, count_up(0, 64), kPrompt);
    history.write(64, count_up(64, 150), kPrompt);
    history.write(150, count_up(150, 158), kGenerated);
    history.write(158, count_up(158, 160), kGenerated);
    EXPECT_EQ(history.size(), 230u);
    EXPECT_EQ(spans(history), before);
    EXPECT_EQ(history.common(count_up(0, 500)), 230u);
}

TEST(History, AnythingElseReplacesIt) {
    const auto after = [](uint32_t first, std::vector<TokenId> tokens, TokenKind kind) {
        History history = two_turns();
        history.write(first, tokens, kind);
        EXPECT_EQ(history.spans().back().end, history.size());
        EXPECT_EQ(history.size(), first + tokens.size());
        return spans(history);
    };
    // Another token; the same by other kernels; a cut where there was none.
    EXPECT_EQ(after(150, {1}, kGenerated), (std::vector<Span>{{150, kPrompt}, {151, kGenerated}}));
    EXPECT_EQ(after(150, count_up(150, 155), kPrompt),
              (std::vector<Span>{{150, kPrompt}, {155, kPrompt}}));
    EXPECT_EQ(after(64, count_up(64, 100), kPrompt), (std::vector<Span>{{100, kPrompt}}));
    EXPECT_EQ(after(0, count_up(0, 100), kGenerated), (std::vector<Span>{{100, kGenerated}}));
    EXPECT_EQ(after(128, count_up(128, 170), kPrompt), (std::vector<Span>{{170, kPrompt}}));
    EXPECT_EQ(
        after(230, {5, 6}, kPrompt),
        (std::vector<Span>{
            {150, kPrompt}, {160, kGenerated}, {210, kPrompt}, {230, kGenerated}, {232, kPrompt}}));
}

// However a conversation is read, rewound and read again: a plan says what was done.
TEST(History, RandomTurnsReadAgainAreReadAsTheyWere) {
    std::mt19937 random(3);
    for (int round = 0; round < 300; ++round) {
        History history;
        for (int turn = 0; turn < 6; ++turn) {
            const auto kept = history.size() ? random() % (history.size() + 1) : 0;
            std::vector<TokenId> prompt(history.tokens().begin(), history.tokens().begin() + kept);
            for (unsigned i = 0; i < 1 + random() % 200; ++i)
                prompt.push_back(static_cast<TokenId>(random() % 3));
            const std::vector<Span> plan = history.plan(prompt);
            ASSERT_EQ(plan.back().end, prompt.size());
            // From any place that a state can be at: on the grid, in an answer, at an end.
            uint32_t cell = static_cast<uint32_t>(random() % (kept + 1)) / 64 * 64;
            cell = std::min(cell, static_cast<uint32_t>(prompt.size()) - 1);
            const std::vector<Span> old = spans(history);
            for (const Span& span : plan) {
                while (cell < span.end) {
                    uint32_t rows = std::min<uint32_t>(1 + random() % 100, span.end - cell);
                    if (span.kind == kPrompt && cell + rows < span.end) {
                        const uint32_t cut = (cell + rows) % 64;
                        if (cut >= rows) continue;
                        rows -= cut;
                    }
                    history.write(cell, std::span(prompt).subspan(cell, rows), span.kind);
                    cell += rows;
                }
            }
            ASSERT_EQ(history.common(prompt), prompt.size());
            // Read once more from its beginning it would be read the same way.
            ASSERT_EQ(history.plan(prompt), plan);
            const auto said = static_cast<uint32_t>(random() % 20);
            for (uint32_t i = 0; i < said; ++i) {
                const auto token = static_cast<TokenId>(random() % 3);
                history.write(cell++, {&token, 1}, kGenerated);
            }
        }
    }
}

TEST(Checkpoints, LieDenseNearTheEndAtDistancesThatDouble) {
    EXPECT_EQ(checkpoint_cells(0, 1000), (std::vector<uint32_t>{896, 832, 704, 448}));
    EXPECT_EQ(checkpoint_cells(800, 1000), (std::vector<uint32_t>{896}));
    EXPECT_TRUE(checkpoint_cells(950, 1000).empty());
    EXPECT_TRUE(checkpoint_cells(0, 1).empty());
    EXPECT_TRUE(checkpoint_cells(0, 127).empty());
    EXPECT_EQ(checkpoint_cells(0, 128), (std::vector<uint32_t>{64}));
    const auto far = checkpoint_cells(0, 1'048'576);
    EXPECT_LE(far.size(), 15u);
    for (uint32_t cells : far) EXPECT_EQ(cells % 64, 0u);
    EXPECT_TRUE(checkpoint_cells(UINT32_MAX - 10, UINT32_MAX).empty());
}

// Dropping what is worth least, again and again, leaves gaps that grow with the distance.
TEST(Checkpoints, ThinnedByWorthTheyDoubleTheirDistances) {
    std::vector<uint64_t> at;
    uint64_t end = 0;
    for (int i = 1; i <= 256; ++i) {
        end = static_cast<uint64_t>(i) * 2048;
        at.push_back(end);
        while (at.size() > 16) {
            size_t least = 0;
            double worth = 1e300;
            for (size_t k = 0; k + 1 < at.size(); ++k) {
                const double w = checkpoint_worth(at[k] - (k ? at[k - 1] : 0), end - at[k]);
                if (w < worth) worth = w, least = k;
            }
            at.erase(at.begin() + static_cast<std::ptrdiff_t>(least));
        }
    }
    EXPECT_EQ(at.back(), end);
    EXPECT_EQ(at[at.size() - 2], end - 2048);
    for (size_t k = 0; k < at.size(); ++k) {
        const uint64_t gap = at[k] - (k ? at[k - 1] : 0);
        EXPECT_LE(gap, std::max<uint64_t>(2 * 2048, 2 * (end - at[k]))) << at[k];
    }
}

}  // namespace
}  // namespace granary::test

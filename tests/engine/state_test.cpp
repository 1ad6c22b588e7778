// SPDX-License-Identifier: GPL-3.0-or-later
#include "granary/state.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace granary {
namespace {

using E = StateEvent;
using S = State;

// Every allowed step; all others must be refused.
const std::map<S, std::map<E, S>> kAllowed{
    {S::no_model, {{E::open, S::loading}}},
    {S::loading,
     {{E::loaded, S::idle}, {E::load_failed, S::no_model}, {E::load_cancelled, S::no_model}}},
    {S::idle,
     {{E::open, S::loading},
      {E::send, S::reading},
      {E::refuse, S::refused},
      {E::engine_lost, S::lost},
      {E::reload, S::loading},
      {E::close, S::no_model}}},
    {S::reading,
     {{E::refuse, S::refused},
      {E::read, S::answering},
      {E::finished, S::idle},
      {E::request_failed, S::failed},
      {E::engine_lost, S::lost}}},
    {S::answering,
     {{E::finished, S::idle}, {E::request_failed, S::failed}, {E::engine_lost, S::lost}}},
    {S::refused,
     {{E::open, S::loading},
      {E::edit, S::idle},
      {E::engine_lost, S::lost},
      {E::reload, S::loading},
      {E::close, S::no_model}}},
    {S::failed,
     {{E::open, S::loading},
      {E::edit, S::idle},
      {E::engine_lost, S::lost},
      {E::reload, S::loading},
      {E::close, S::no_model}}},
    {S::lost, {{E::open, S::loading}, {E::reload, S::loading}, {E::close, S::no_model}}},
};

TEST(State, AllowsExactlyTheListedSteps) {
    for (int state = 0; state < kStates; ++state) {
        for (int event = 0; event < kStateEvents; ++event) {
            const auto from = static_cast<S>(state);
            const auto& steps = kAllowed.at(from);
            const auto step = steps.find(static_cast<E>(event));
            const std::optional<S> expected =
                step == steps.end() ? std::nullopt : std::optional(step->second);
            EXPECT_EQ(next_state(from, static_cast<E>(event)), expected)
                << state_name(from) << ", event " << event;
        }
    }
}

TEST(State, EachIsReachedAndLeft) {
    std::set<S> reached{S::no_model};
    for (const auto& [from, steps] : kAllowed) {
        EXPECT_FALSE(steps.empty()) << state_name(from);
        for (const auto& [event, to] : steps) reached.insert(to);
    }
    EXPECT_EQ(reached.size(), static_cast<size_t>(kStates));
}

TEST(State, UnknownValuesLeadNowhere) {
    EXPECT_EQ(next_state(static_cast<S>(kStates), E::open), std::nullopt);
    EXPECT_EQ(next_state(S::idle, static_cast<E>(kStateEvents)), std::nullopt);
    EXPECT_EQ(state_name(static_cast<S>(kStates)), "Unknown");
}

TEST(State, NamesAreThoseOfScripts) {
    const std::map<S, std::string> names{{S::no_model, "NoModel"},    {S::loading, "Loading"},
                                         {S::idle, "Idle"},           {S::reading, "Reading"},
                                         {S::answering, "Answering"}, {S::refused, "Refused"},
                                         {S::failed, "Failed"}};
    for (const auto& [state, name] : names) {
        EXPECT_EQ(state_name(state), name);
        EXPECT_EQ(state_from_name(name), state);
    }
    EXPECT_EQ(state_name(S::lost), "Failed");
    for (const char* wrong : {"", "idle", "Idle ", "Lost", "Unknown"})
        EXPECT_EQ(state_from_name(wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace granary

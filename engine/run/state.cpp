// SPDX-License-Identifier: GPL-3.0-or-later
#include "granary/state.h"

#include <array>

namespace granary {
namespace {

struct Transition {
    State from;
    StateEvent event;
    State to;
};

// What is not listed is not allowed. While a request runs nothing but its end leads out: opening,
// closing and reloading stop it first.
constexpr Transition kTransitions[] = {
    {State::no_model, StateEvent::open, State::loading},

    // Opening closes the model before it, since two would not fit; a load that comes to nothing
    // therefore leaves none.
    {State::loading, StateEvent::loaded, State::idle},
    {State::loading, StateEvent::load_failed, State::no_model},
    {State::loading, StateEvent::load_cancelled, State::no_model},

    {State::idle, StateEvent::open, State::loading},
    {State::idle, StateEvent::send, State::reading},
    {State::idle, StateEvent::refuse, State::refused},
    {State::idle, StateEvent::engine_lost, State::lost},  // while settings were applied
    {State::idle, StateEvent::reload, State::loading},
    {State::idle, StateEvent::close, State::no_model},

    {State::reading, StateEvent::refuse, State::refused},  // admission has the last word
    {State::reading, StateEvent::read, State::answering},
    {State::reading, StateEvent::finished, State::idle},  // stopped while reading
    {State::reading, StateEvent::request_failed, State::failed},
    {State::reading, StateEvent::engine_lost, State::lost},

    {State::answering, StateEvent::finished, State::idle},
    {State::answering, StateEvent::request_failed, State::failed},
    {State::answering, StateEvent::engine_lost, State::lost},

    // The engine lives: an edit makes room for the next attempt, and sending needs one, so that
    // the same prompt is not refused twice in a row by a key held down.
    {State::refused, StateEvent::open, State::loading},
    {State::refused, StateEvent::edit, State::idle},
    {State::refused, StateEvent::engine_lost, State::lost},
    {State::refused, StateEvent::reload, State::loading},
    {State::refused, StateEvent::close, State::no_model},

    {State::failed, StateEvent::open, State::loading},
    {State::failed, StateEvent::edit, State::idle},
    {State::failed, StateEvent::engine_lost, State::lost},
    {State::failed, StateEvent::reload, State::loading},
    {State::failed, StateEvent::close, State::no_model},

    // No edit leads out: there is no engine to go back to.
    {State::lost, StateEvent::open, State::loading},
    {State::lost, StateEvent::reload, State::loading},
    {State::lost, StateEvent::close, State::no_model},
};

constexpr std::array<std::string_view, kStates> kNames{"NoModel",   "Loading", "Idle",   "Reading",
                                                       "Answering", "Refused", "Failed", "Failed"};

}  // namespace

std::optional<State> next_state(State state, StateEvent event) {
    for (const Transition& transition : kTransitions)
        if (transition.from == state && transition.event == event) return transition.to;
    return std::nullopt;
}

std::string_view state_name(State state) {
    const auto index = static_cast<size_t>(state);
    return index < kNames.size() ? kNames[index] : "Unknown";
}

std::optional<State> state_from_name(std::string_view name) {
    for (size_t index = 0; index < kNames.size(); ++index)
        if (kNames[index] == name) return static_cast<State>(index);
    return std::nullopt;
}

}  // namespace granary

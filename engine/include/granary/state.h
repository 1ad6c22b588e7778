// SPDX-License-Identifier: GPL-3.0-or-later
// What the program is doing, as one value: owned by the thread that runs the engine, sent to
// everybody else. The transition table is the only place where it changes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace granary {

// failed: the request is over, the engine lives. lost: the engine is gone and only Reload, Open
// and Close lead on. To scripts both are "Failed".
enum class State : uint8_t {
    no_model, loading, idle, reading, answering, refused, failed, lost
};
inline constexpr int kStates = 8;

enum class StateEvent : uint8_t {
    open,             // a person opens a model
    loaded,           // the model is ready
    load_failed,      // the file or the memory was not good enough
    load_cancelled,
    send,             // a prompt was admitted and is being read
    refuse,           // a prompt was refused; nothing was read or changed
    read,             // the prompt is read, the first token follows
    finished,         // the answer ended: by itself, at a limit, or stopped
    request_failed,   // the request is over, the engine lives
    engine_lost,      // the engine is gone; only Reload helps
    edit,             // a person edits the draft or dismisses the bar
    reload,
    close,            // the model is closed
};
inline constexpr int kStateEvents = 13;

// The state after `event` in `state`, or nothing where the event is not allowed there.
std::optional<State> next_state(State state, StateEvent event);

// "NoModel", "Loading", ...: the names that scripts wait for; compare names, since two states
// share "Failed" (state_from_name gives `failed` for it).
std::string_view state_name(State state);
std::optional<State> state_from_name(std::string_view name);

}  // namespace granary

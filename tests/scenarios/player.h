// SPDX-License-Identifier: GPL-3.0-or-later
// Plays the lines of a scenario on engines; see README.md.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "granary/engine.h"
#include "tests/gguf/gguf_builder.h"
#include "tests/scenarios/script.h"

namespace granary::test {

class Player {
  public:
    bool echo = false;  // the engines' log goes to standard output, too

    // Empty, or why the line does not hold.
    std::string play(const ScriptLine& line);
    // An action that was refused and that no `expect refused` followed; empty: none.
    std::string unexpected() const;

  private:
    using Words = std::vector<std::string>;
    struct Conversation {
        ConversationId id = 0;
        std::string text;  // all that was asked
    };
    // What an answer or a computation gave.
    struct Outcome {
        std::string text;
        LogitsResult numbers;
        bool operator==(const Outcome& other) const;
    };

    std::string model(const Words& words);
    std::string open(const Words& words);
    std::string apply(const Words& words);
    std::string conversation(const Words& words);
    std::string ask(const Words& words);
    std::string compute(const Words& words);
    std::string expect(const Words& words);
    std::string expect_shrinks() const;
    std::string always() const;  // what holds after every action

    std::string settings_from(const Words& words, size_t first, Settings& settings);
    Result<uint64_t> budget(const std::string& value, Settings settings) const;
    // New text of so many tokens; the same for the same `seed`.
    std::string text_of(uint32_t tokens, size_t seed) const;
    uint64_t log_count(const std::string& text) const;

    std::string path_;
    std::optional<TempDir> folder_;  // of a model that is kept packed
    std::unique_ptr<Engine> engine_;
    std::vector<std::string> log_;  // since the engine was opened
    std::map<std::string, Conversation> conversations_;
    std::string current_;
    std::optional<Error> error_;
    Report report_;
    std::vector<ScheduledChunks> schedule_;  // of the last prompt
    uint32_t schedule_from_ = 0, schedule_total_ = 0;
    Standing schedule_standing_;
    Outcome outcome_;
    std::map<std::string, Outcome> remembered_;
};

}  // namespace granary::test

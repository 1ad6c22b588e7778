// SPDX-License-Identifier: GPL-3.0-or-later
// Scenario files as lists of lines; see README.md for what a line can say.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace granary::test {

struct ScriptLine {
    size_t number = 0;                        // in its file
    std::vector<std::string> words;           // quotes taken off
    std::map<std::string, std::string> loop;  // what the loops around it stand at
    std::string text() const;                 // for messages
};

// The lines in the order in which they run, loops written out. `error` says what is wrong with the
// file, or stays empty.
std::vector<ScriptLine> parse_script(const std::string& file, std::string& error);

}  // namespace granary::test

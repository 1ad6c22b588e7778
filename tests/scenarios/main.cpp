// SPDX-License-Identifier: GPL-3.0-or-later
// Plays scenario files: run_scenario [--log] FILE...
#include <chrono>
#include <fstream>
#include <iostream>

#include "tests/scenarios/player.h"

namespace {

bool play(const std::string& path, bool log) {
    using namespace granary::test;
    std::ifstream stream(path);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    std::string wrong = stream ? "" : "cannot be read";
    const std::vector<ScriptLine> lines = parse_script(text, wrong);
    if (wrong.empty() && lines.empty()) wrong = "says nothing";
    if (!wrong.empty()) {
        std::cerr << path << ": " << wrong << "\n";
        return false;
    }
    Player player;
    player.echo = log;
    for (const ScriptLine& line : lines) {
        if (log) std::cout << line.text() << "\n";
        wrong = player.play(line);
        if (wrong.empty() && &line == &lines.back()) wrong = player.unexpected();
        if (wrong.empty()) continue;
        std::cerr << path << ":" << line.number << ": " << line.text() << "\n    " << wrong << "\n";
        return false;
    }
    std::cout << path << ": " << lines.size() << " lines hold\n";
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    const bool log = argc > 1 && std::string_view(argv[1]) == "--log";
    bool all = argc > 1 + log;
    for (int i = 1 + log; i < argc; ++i) all = play(argv[i], log) && all;
    return all ? 0 : 1;
}

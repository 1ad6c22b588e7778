// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/scenarios/script.h"

#include <sstream>

namespace granary::test {
namespace {

// Words of a line up to a '#'; "two words" is one.
bool split(const std::string& line, std::vector<std::string>& words) {
    for (size_t at = 0; at < line.size();) {
        if (line[at] == ' ' || line[at] == '\t' || line[at] == ',') {
            ++at;
        } else if (line[at] == '#') {
            break;
        } else if (line[at] == '"') {
            const size_t end = line.find('"', at + 1);
            if (end == std::string::npos) return false;
            words.push_back(line.substr(at + 1, end - at - 1));
            at = end + 1;
        } else {
            const size_t end = std::min(line.find_first_of(" \t,#", at), line.size());
            words.push_back(line.substr(at, end - at));
            at = end;
        }
    }
    return true;
}

std::string filled_in(std::string word, const std::map<std::string, std::string>& loop) {
    for (const auto& [name, value] : loop)
        for (size_t at; (at = word.find("${" + name + "}")) != std::string::npos;)
            word.replace(at, name.size() + 3, value);
    return word;
}

// Lines [begin, end) with the loops among them written out.
void write_out(const std::vector<ScriptLine>& lines, size_t begin, size_t end,
               const std::map<std::string, std::string>& loop, std::vector<ScriptLine>& out,
               std::string& error) {
    for (size_t i = begin; i < end && error.empty(); ++i) {
        const std::vector<std::string>& words = lines[i].words;
        if (words[0] != "for") {
            ScriptLine line = lines[i];
            for (std::string& word : line.words) word = filled_in(word, loop);
            line.loop = loop;
            out.push_back(std::move(line));
            continue;
        }
        size_t close = i + 1;
        for (size_t depth = 1; close < end; ++close) {
            depth += lines[close].words[0] == "for";
            if (lines[close].words[0] == "end" && --depth == 0) break;
        }
        if (close == end || words.size() < 4 || words[2] != "in") {
            error = "line " + std::to_string(lines[i].number) + ": for NAME in VALUES .. end";
            return;
        }
        for (size_t value = 3; value < words.size(); ++value) {
            auto inner = loop;
            inner[words[1]] = words[value];
            write_out(lines, i + 1, close, inner, out, error);
        }
        i = close;
    }
}

}  // namespace

std::string ScriptLine::text() const {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
    for (const auto& [name, value] : loop) text += "  [" + name + " " + value + "]";
    return text;
}

std::vector<ScriptLine> parse_script(const std::string& file, std::string& error) {
    std::vector<ScriptLine> lines, out;
    std::istringstream stream(file);
    std::string line;
    for (size_t number = 1; std::getline(stream, line); ++number) {
        ScriptLine parsed;
        parsed.number = number;
        if (!split(line, parsed.words)) {
            error = "line " + std::to_string(number) + ": a quote is not closed";
            return out;
        }
        if (!parsed.words.empty()) lines.push_back(std::move(parsed));
    }
    write_out(lines, 0, lines.size(), {}, out, error);
    return out;
}

}  // namespace granary::test

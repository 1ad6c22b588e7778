// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/text/vocabulary_builder.h"

#include <sstream>

#include "tests/unpacked.h"

namespace granary::test {
TestVocabulary stored_vocabulary(const std::string& name, const std::string& pre) {
    std::istringstream lines(unpacked(GRANARY_TEST_DATA "/tokenizer/" + name + ".vocabulary.gz"));
    TestVocabulary vocabulary;
    vocabulary.pre = pre;
    std::string line;
    while (std::getline(lines, line) && !line.empty()) vocabulary.add(line);
    while (std::getline(lines, line) && !line.empty()) {
        const size_t space = line.find(' ');
        vocabulary.merge(line.substr(0, space), line.substr(space + 1));
    }
    while (std::getline(lines, line)) vocabulary.add(line.substr(2), line[0] - '0');
    return vocabulary;
}

}  // namespace granary::test

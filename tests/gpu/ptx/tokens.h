// SPDX-License-Identifier: GPL-3.0-or-later
// The words of a PTX text: names and operations with their dots, numbers, and single signs.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace granary::test::ptx {

// What is wrong with a text, or with what a kernel does.
struct Fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Without comments. The text must outlive the words.
std::vector<std::string_view> tokens(std::string_view text);

// Of dotted words: "add.s32" is "add" and "s32".
std::vector<std::string_view> split_at_dots(std::string_view word);

}  // namespace granary::test::ptx

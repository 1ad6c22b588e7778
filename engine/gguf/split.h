// SPDX-License-Identifier: GPL-3.0-or-later
// Names of the files of a split model: NAME-00001-of-00003.gguf.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace granary::gguf {

struct SplitName {
    std::string prefix;   // with its folders
    uint32_t number = 0;  // from 1
    uint32_t count = 0;

    std::string path(uint32_t part_number) const;
};

// Nothing where the path does not end in that pattern.
std::optional<SplitName> parse_split_name(const std::string& path);

}  // namespace granary::gguf

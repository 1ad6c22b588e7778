// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/gguf/split.h"

#include <cstdio>
#include <string_view>

namespace granary::gguf {
namespace {

constexpr std::string_view pattern = "-#####-of-#####.gguf";

uint32_t five_digits(std::string_view text) {
    uint32_t number = 0;
    for (const char c : text.substr(0, 5)) number = number * 10 + static_cast<uint32_t>(c - '0');
    return number;
}

}  // namespace

std::string SplitName::path(uint32_t part_number) const {
    char tail[32];
    std::snprintf(tail, sizeof tail, "-%05u-of-%05u.gguf", part_number, count);
    return prefix + tail;
}

std::optional<SplitName> parse_split_name(const std::string& path) {
    if (path.size() < pattern.size()) return std::nullopt;
    const size_t start = path.size() - pattern.size();
    const std::string_view tail = std::string_view(path).substr(start);
    for (size_t i = 0; i < pattern.size(); ++i) {
        const bool digit = tail[i] >= '0' && tail[i] <= '9';
        if (pattern[i] == '#' ? !digit : tail[i] != pattern[i]) return std::nullopt;
    }
    return SplitName{path.substr(0, start), five_digits(tail.substr(1)),
                     five_digits(tail.substr(10))};
}

}  // namespace granary::gguf

// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/small_file.h"

#include <fstream>

namespace granary::gpu {

std::string read_small_file(const std::string& path) {
    constexpr std::streamsize kMost = 64 * 1024;
    std::ifstream file(path, std::ios::binary);
    std::string text(kMost, '\0');
    file.read(text.data(), kMost);
    text.resize(static_cast<size_t>(file.gcount()));
    return text;
}

std::string trimmed(std::string text) {
    constexpr const char* kSpace = " \t\r\n";
    const size_t first = text.find_first_not_of(kSpace);
    if (first == std::string::npos) return {};
    text.erase(text.find_last_not_of(kSpace) + 1);
    return text.substr(first);
}

}  // namespace granary::gpu

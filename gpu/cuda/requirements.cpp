// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/cuda/requirements.h"

#include <algorithm>
#include <cctype>

#include "gpu/small_file.h"

namespace granary::gpu::cuda {
namespace {

std::string number(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// The first driver for a major version of CUDA on Linux; 0 where this build does not know it.
int first_driver(int major) {
    return major == 12 ? 525 : major == 13 ? 580 : 0;
}

}  // namespace

std::string too_old(int supported, int built, const std::string& installed) {
    const int major = built / 1000;
    if (built == 0 || supported / 1000 >= major) return {};
    std::string text = "driver " + (installed.empty() ? "" : installed + " ") + "supports CUDA " +
                       number(supported) + "; this build needs " + number(major * 1000);
    if (const int driver = first_driver(major); driver != 0)
        text += ", driver " + std::to_string(driver) + " or newer";
    return text;
}

std::string installed_driver(const std::string& root) {
    const std::string direct = trimmed(read_small_file(root + "/sys/module/nvidia/version"));
    if (!direct.empty()) return direct;
    // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 ...": the first word
    // made of digits and points.
    const std::string text = read_small_file(root + "/proc/driver/nvidia/version");
    const auto belongs = [](char c) {
        return std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.';
    };
    for (size_t at = 0, end; at < text.size(); at = end + 1) {
        end = std::min(text.find_first_of(" \t\n", at), text.size());
        const std::string word = text.substr(at, end - at);
        if (word.find('.') != std::string::npos && std::all_of(word.begin(), word.end(), belongs))
            return word;
    }
    return {};
}

}  // namespace granary::gpu::cuda

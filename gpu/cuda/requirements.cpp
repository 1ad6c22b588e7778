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

constexpr int kTriedCapability = 90;  // NVIDIA H200

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

std::string why(const Error& error) {
    constexpr size_t kShort = 60;  // a list of libraries that were looked for is longer
    if (error.detail.empty() || error.detail.size() > kShort) return error.what;
    return error.what + " (" + error.detail + ")";
}

std::vector<CudaGpu> judge(const std::vector<DeviceFacts>& found, const std::string& reason,
                           int least) {
    const auto capability = [](int number) {
        return std::to_string(number / 10) + "." + std::to_string(number % 10);
    };
    std::vector<CudaGpu> gpus;
    for (const DeviceFacts& gpu : found) {
        FoundDevice device{{}, gpu.name, gpu.total_bytes, {}};
        if (!reason.empty()) {
            device.note = reason;
        } else if (gpu.capability < least) {
            device.note = "compute capability " + capability(gpu.capability) +
                          "; this build needs " + capability(least) + " or newer";
        } else if (!gpu.maps_memory) {
            device.note = "its driver cannot map memory piece by piece";
        } else {
            device.id = "cuda:" + std::to_string(gpu.ordinal);
            if (gpu.capability != kTriedCapability)
                device.note = "whole models have been run on compute capability " +
                              capability(kTriedCapability) + ", not on its " +
                              capability(gpu.capability);
        }
        gpus.push_back({gpu.bus_id, std::move(device)});
    }
    return gpus;
}

}  // namespace granary::gpu::cuda

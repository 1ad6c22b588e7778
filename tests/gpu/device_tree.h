// SPDX-License-Identifier: GPL-3.0-or-later
// A made-up /proc and /sys in a folder of its own.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace granary::gpu {

class DeviceTree {
  public:
    DeviceTree() {
        std::string name = (std::filesystem::temp_directory_path() / "granary-XXXXXX").string();
        root_ = mkdtemp(name.data());
    }
    ~DeviceTree() { std::filesystem::remove_all(root_); }
    DeviceTree(const DeviceTree&) = delete;
    DeviceTree& operator=(const DeviceTree&) = delete;

    const std::string& root() const { return root_; }

    void write(const std::string& path, const std::string& text) const {
        const std::filesystem::path file = root_ + path;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file) << text;
    }

  private:
    std::string root_;
};

}  // namespace granary::gpu

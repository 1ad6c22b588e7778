// SPDX-License-Identifier: GPL-3.0-or-later
// A folder that a test may fill; removed at its end.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace granary::test {

class ScratchFolder {
  public:
    ScratchFolder() {
        std::string pattern = ::testing::TempDir() + "extract test XXXXXX";
        path_ = mkdtemp(pattern.data());
    }
    ~ScratchFolder() { std::filesystem::remove_all(path_); }

    std::string path(const std::string& name) const { return path_ + "/" + name; }
    std::string write(const std::string& name, std::string_view bytes) const {
        std::ofstream(path(name), std::ios::binary) << bytes;
        return path(name);
    }

  private:
    std::string path_;
};

}  // namespace granary::test

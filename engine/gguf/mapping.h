// SPDX-License-Identifier: GPL-3.0-or-later
// A whole file, mapped read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "gpu/error.h"

namespace granary::gguf {

class Mapping {
  public:
    // Fails (kind io) on anything but a regular file that is not empty.
    static Result<Mapping> open(const std::string& path);
    Mapping(Mapping&& other) noexcept;
    Mapping& operator=(Mapping&&) = delete;
    ~Mapping();

    const std::string& path() const { return path_; }
    const std::byte* data() const { return data_; }
    uint64_t size() const { return size_; }

  private:
    Mapping(std::string path, const std::byte* data, uint64_t size);
    std::string path_;
    const std::byte* data_ = nullptr;
    uint64_t size_ = 0;
};

}  // namespace granary::gguf

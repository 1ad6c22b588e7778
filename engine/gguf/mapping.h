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
    // Whether the file still has the bytes that are mapped. Where another file has taken its name,
    // the mapped one lives on. Errors: invalid_file with both sizes.
    Result<void> still_whole() const;

  private:
    Mapping(std::string path, const std::byte* data, uint64_t size, uint64_t device,
            uint64_t number);
    std::string path_;
    uint64_t device_ = 0, number_ = 0;  // of the file, whatever it is called
    const std::byte* data_ = nullptr;
    uint64_t size_ = 0;
};

}  // namespace granary::gguf

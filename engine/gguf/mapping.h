// SPDX-License-Identifier: GPL-3.0-or-later
// A whole file, mapped read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/gguf/mapping_guard.h"
#include "gpu/error.h"

namespace granary::gguf {

class Mapping {
  public:
    // Fails (kind io) on anything but a regular file that is not empty.
    static Result<Mapping> open(const std::string& path);

    const std::string& path() const { return path_; }
    const std::byte* data() const { return data_.get(); }
    uint64_t size() const { return data_.get_deleter().bytes; }
    // Whether the file still has the bytes that are mapped. Where another file has taken its name,
    // the mapped one lives on. Errors: as intact, or invalid_file with both sizes.
    Result<void> still_whole() const;
    // Whether all that has been read so far was there; asks the system for nothing. Errors: io with
    // the first byte that was not; it stays so.
    Result<void> intact() const;

  private:
    struct Unmap {
        uint64_t bytes;
        void operator()(const std::byte* data) const;
    };

    Mapping(std::string path, const std::byte* data, uint64_t size, uint64_t device,
            uint64_t number);
    std::string path_;
    uint64_t device_ = 0, number_ = 0;  // of the file, whatever it is called
    std::unique_ptr<const std::byte, Unmap> data_;
    MappingGuard guard_;  // ends before the mapping does
};

}  // namespace granary::gguf

// SPDX-License-Identifier: GPL-3.0-or-later
// Writes a file of any size piece by piece, so that whoever opens it sees the old one or the new
// one, whole, also where the program or the machine stops in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "gpu/error.h"

namespace granary {

class AtomicFile {
  public:
    // Begins a file of `bytes` bytes beside `path`, whose links are followed, with `mode` less the
    // process's umask: by default only its owner may read it. Errors: `refused` where the disk has
    // no room for it; `io` with the system's reason, also where another program is writing the same
    // file now or somebody else's file is in the way.
    static Result<AtomicFile> create(const std::string& path, uint64_t bytes, unsigned mode = 0600);
    AtomicFile(AtomicFile&& other) noexcept;
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;
    ~AtomicFile();  // without commit() nothing is left of it

    Result<void> write(std::span<const std::byte> bytes);
    // Puts it in the place of `path`, once the disk has it.
    Result<void> commit();

  private:
    AtomicFile(std::string path, std::string part, int file)
        : path_(std::move(path)), part_(std::move(part)), file_(file) {}

    std::string path_, part_;
    int file_ = -1;
};

}  // namespace granary

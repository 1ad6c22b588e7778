// SPDX-License-Identifier: GPL-3.0-or-later
// What cannot be read of a mapped file, since the file was cut short or its disk is gone, raises
// SIGBUS, which ends the process. Under guard the rest of the mapping is zeros from there on, and
// its owner can ask.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace granary::gguf {

class MappingGuard {
  public:
    // Watches [data, data + size), which must stay mapped as long. The first guard of a process
    // sets a handler of SIGBUS; what it knows nothing of goes to the handler before it.
    MappingGuard(const std::byte* data, uint64_t size);
    MappingGuard(MappingGuard&&) noexcept = default;
    MappingGuard& operator=(MappingGuard&&) = delete;

    // The first byte that is zero for want of the file's.
    std::optional<uint64_t> lost_from() const;

    struct Watched;

  private:
    struct Release {
        void operator()(Watched* watched) const;
    };
    std::unique_ptr<Watched, Release> watched_;
};

}  // namespace granary::gguf

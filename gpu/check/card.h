// SPDX-License-Identifier: GPL-3.0-or-later
// What the self-check needs of a device beside its memory: a pattern that the device itself writes
// and reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "gpu/cuda/driver.h"
#include "gpu/device.h"

namespace granary::gpu::check {

// Work that was captured once and can be queued again and again.
class Replay {
  public:
    virtual ~Replay() = default;
    virtual Result<void> run() = 0;  // and wait for it
};

// One pool of granules on a device. Pieces of memory are whole words of 8 bytes; work is queued on
// the compute stream.
class Card {
  public:
    virtual ~Card() = default;
    virtual DeviceMemory& memory() = 0;
    virtual Result<void> write(std::byte* at, size_t bytes, uint64_t seed) = 0;
    // Words that differ from what `write` left there, after waiting for all that is queued.
    virtual Result<uint64_t> wrong_words(const std::byte* at, size_t bytes, uint64_t seed) = 0;
    // Of write(). Errors: unsupported where the device captures nothing.
    virtual Result<std::unique_ptr<Replay>> capture_write(std::byte* at, size_t bytes,
                                                          uint64_t seed) = 0;
    // Of the device, as its driver says now.
    virtual Result<uint64_t> free_bytes() = 0;
};

class Subject {
  public:
    virtual ~Subject() = default;
    virtual Result<std::unique_ptr<Card>> open() = 0;  // another pool on the same device
    // Of a GPU, whose calls can be made to fail; null for the host.
    virtual cuda::Driver* driver() { return nullptr; }
};

// A GPU. `code`: of gpu/cuda/memory_check.cu.
std::unique_ptr<Subject> gpu_subject(std::shared_ptr<cuda::Driver> driver, cuda::Ordinal device,
                                     size_t granule_bytes, std::span<const std::byte> code);
// The host's card face with `bytes` for each pool.
std::unique_ptr<Subject> host_subject(uint64_t bytes, size_t granule_bytes);

}  // namespace granary::gpu::check

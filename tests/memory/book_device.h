// SPDX-License-Identifier: GPL-3.0-or-later
// A device that keeps books instead of memory: ranges, granules and streams are tables, and every
// call that a real device could not take is remembered as a fault. It computes nothing.
//
// Ranges have addresses that can be read and written. What lies there does not move with a granule:
// it is spoilt when a place is mapped or unmapped, as nobody may rely on it then. Ranges of more
// than kKeptBytes keep nothing.
#pragma once

#include <array>
#include <deque>
#include <string>
#include <vector>

#include "gpu/device.h"

namespace granary::test {

class BookDevice final : public gpu::Device {
  public:
    static constexpr size_t kKeptBytes = size_t{64} << 20;

    BookDevice(size_t granule_bytes, size_t most_granules);
    ~BookDevice() override;

    // ---- what a test asks ----------------------------------------------------------------
    // Calls that no device could have taken, in order; empty is as it should be.
    const std::vector<std::string>& faults() const { return faults_; }
    // Pieces of memory that a device of pieces of one file would have to map.
    size_t mappings() const;
    bool keeps_content(const std::byte* base) const;  // of the live range that begins there

    // ---- gpu::Device ---------------------------------------------------------------------
    const gpu::DeviceInfo& info() const override { return info_; }
    gpu::Kernels& kernels() override;
    Result<gpu::RangeId> reserve(size_t places) override;
    void release(gpu::RangeId range) override;
    std::byte* base(gpu::RangeId range) const override;
    size_t places(gpu::RangeId range) const override;
    Result<void> create_granules(size_t count) override;
    size_t granules() const override { return granules_.size(); }
    Result<void> release_granules(std::span<const gpu::GranuleId> granules) override;
    Result<void> recreate_granules(std::span<const gpu::GranuleId> granules) override;
    bool held(gpu::GranuleId granule) const override;
    Result<void> map(gpu::RangeId range, size_t first,
                     std::span<const gpu::GranuleId> granules) override;
    Result<void> unmap(gpu::RangeId range, size_t first, size_t count) override;
    uint64_t driver_allocations() const override { return driver_allocations_; }
    uint64_t driver_bytes() const override { return held_ * info_.granule_bytes; }
    Result<gpu::HostBuffer> page_locked(size_t bytes) override;
    void copy(gpu::StreamId stream, void* to, const void* from, size_t bytes) override;
    void fill(gpu::StreamId stream, void* to, int byte, size_t bytes) override;
    gpu::Event record(gpu::StreamId stream) override;
    void wait(gpu::StreamId stream, gpu::Event event) override;
    Result<void> synchronize(gpu::StreamId stream) override;
    void wait_here(gpu::Event) override {}
    bool passed(gpu::Event) override { return true; }

  private:
    static constexpr gpu::GranuleId kNone = UINT32_MAX;
    static constexpr size_t kStreams = 2;
    using Tickets = std::array<uint64_t, kStreams>;
    struct Range {
        std::byte* base = nullptr;  // null: released
        std::vector<gpu::GranuleId> granules;
        std::vector<Tickets> touched;  // the last work of each stream on each place
    };
    struct Granule {
        bool held = true, mapped = false;
    };
    tl::unexpected<Error> fault(std::string what);
    bool keeps(const void* at) const;
    bool keeps_content(gpu::RangeId range) const;
    Range* find(gpu::RangeId range);
    void spoil(const Range& range, size_t first, size_t count);
    // The range and the places that [at, at + bytes) lies in; null: host memory.
    Range* places_of(const void* at, size_t bytes, size_t& first, size_t& last);
    void touch(gpu::StreamId stream, const void* at, size_t bytes, const char* verb);

    gpu::DeviceInfo info_;
    std::byte* arena_ = nullptr;  // of all ranges' addresses
    size_t arena_used_ = 0;
    std::deque<Range> ranges_;
    std::vector<std::pair<std::byte*, gpu::RangeId>> by_address_;  // live ones, upward
    std::vector<Granule> granules_;
    size_t held_ = 0;
    uint64_t driver_allocations_ = 0;
    Tickets issued_{}, done_{};
    std::vector<std::string> faults_;
};

}  // namespace granary::test

// SPDX-License-Identifier: GPL-3.0-or-later
// The host's granules and ranges: granules are pieces of one memfd, a range is a span of reserved
// addresses, and mapping lays pieces of the file over places of the range.
//
// All functions but granules(), bytes() and base() belong to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpu/device.h"
#include "gpu/granule_table.h"

namespace granary::gpu::host {

class Memory {
  public:
    // granule_bytes: a multiple of the page size.
    explicit Memory(size_t granule_bytes) : granule_bytes_(granule_bytes) {}
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    Result<RangeId> reserve(size_t places);
    void release(RangeId range);  // unmaps what is still mapped
    std::byte* base(RangeId range) const;
    size_t places(RangeId range) const { return table_.places(range).size(); }

    // `count` more granules, their pages taken from the system now: using them later cannot fail.
    Result<void> create(size_t count);
    size_t granules() const { return table_.granules(); }
    uint64_t bytes() const { return table_.held_granules() * uint64_t{granule_bytes_}; }
    uint64_t system_bytes() const;  // the same, as the system counts it

    // As in Device. Errors: internal for places or granules that do not exist, are taken or are
    // free when they should not be; out_of_memory or device when the system refuses.
    Result<void> release_granules(std::span<const GranuleId> granules);
    Result<void> recreate(std::span<const GranuleId> granules);
    bool held(GranuleId granule) const { return table_.held(granule); }
    Result<void> map(RangeId range, size_t first, std::span<const GranuleId> granules);
    Result<void> unmap(RangeId range, size_t first, size_t count);

    // Separate mappings that the ranges cost the process. The system allows 65,530 by default;
    // kMostMappings leaves room for a second device and for everybody else.
    size_t mappings() const { return mappings_; }
    static constexpr size_t kMostMappings = 30'000;

  private:
    // Borders between mappings among places [first, first + count) and their neighbours.
    size_t borders(RangeId range, size_t first, size_t count) const;
    Result<void> make_hole(RangeId range, size_t first, size_t count);
    // Takes pages for `count` granules of the file, or gives theirs back.
    bool take_pages(size_t first, size_t count);
    bool give_pages_back(size_t first, size_t count);

    Result<void> system_has(size_t count) const;
    tl::unexpected<Error> no_memory(size_t count, const std::string& cause) const;

    size_t granule_bytes_;
    int file_ = -1;
    GranuleTable table_;
    std::vector<std::byte*> bases_;  // [ranges], null: released
    size_t mappings_ = 0;
};

}  // namespace granary::gpu::host

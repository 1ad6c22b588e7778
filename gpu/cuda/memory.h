// SPDX-License-Identifier: GPL-3.0-or-later
// Granules and ranges of a GPU: a granule is one handle of the driver's, a range a span of reserved
// device addresses. Handles of many granules would cost a third per byte, and could not be mapped
// granule by granule.
//
// All functions belong to one thread at a time, with the context current.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gpu/cuda/context.h"
#include "gpu/device.h"
#include "gpu/granule_table.h"

namespace granary::gpu::cuda {

class Memory {
  public:
    // granule_bytes: a multiple of the device's granularity.
    Memory(const SharedContext& context, size_t granule_bytes);
    ~Memory();  // nothing may still run that touches it
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    Result<RangeId> reserve(size_t places);
    void release(RangeId range);  // unmaps what is still mapped
    std::byte* base(RangeId range) const;
    size_t places(RangeId range) const { return table_.places(range).size(); }

    // As in Device. Errors: internal for places or granules that do not exist, are taken or are
    // free when they should not be; else the driver's.
    Result<void> create(size_t count);
    Result<void> release_granules(std::span<const GranuleId> granules);
    Result<void> recreate(std::span<const GranuleId> granules);
    size_t granules() const { return table_.granules(); }
    uint64_t bytes() const {
        return (table_.held_granules() + stranded_.size()) * uint64_t{granule_bytes_};
    }
    bool held(GranuleId granule) const { return table_.held(granule); }
    Result<void> map(RangeId range, size_t first, std::span<const GranuleId> granules);
    Result<void> unmap(RangeId range, size_t first, size_t count);

  private:
    Address address(RangeId range, size_t place) const {
        return bases_[range] + place * uint64_t{granule_bytes_};
    }
    Status new_handle(Granule* handle) const;
    void take_back(Granule handle);  // of a call that failed later

    const Driver& driver_;
    size_t granule_bytes_;
    AllocationProperties properties_;
    Access access_;
    GranuleTable table_;
    std::vector<Address> bases_;    // [ranges], 0: released
    std::vector<Granule> handles_;  // [granules]; of released ones meaningless
    // What the driver kept when it should have taken it back: the destructor tries again.
    std::vector<Granule> stranded_;
};

}  // namespace granary::gpu::cuda

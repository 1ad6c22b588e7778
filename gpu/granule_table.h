// SPDX-License-Identifier: GPL-3.0-or-later
// Which granule lies behind which place, and what each granule is in use for: the bookkeeping that
// every device needs. It checks calls before they reach a driver, and touches no memory itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "gpu/device.h"

namespace granary::gpu {

class GranuleTable {
  public:
    static constexpr GranuleId kNone = std::numeric_limits<GranuleId>::max();

    // ---- ranges ----------------------------------------------------------------------------
    RangeId add_range(size_t places);
    void remove_range(RangeId range);                 // frees the granules that are mapped there
    size_t ranges() const { return ranges_.size(); }  // ever added
    // What lies behind each place, kNone where nothing is; empty for a range that does not exist.
    std::span<const GranuleId> places(RangeId range) const;

    // ---- granules, all in one use or the call changes nothing; errors: internal ----------------
    Result<void> check_addition(size_t count) const;             // that many more can be numbered
    void add_granules(size_t count);                             // held and free
    Result<void> release(std::span<const GranuleId> granules);   // free -> released
    Result<void> recreate(std::span<const GranuleId> granules);  // released -> free
    size_t granules() const { return uses_.size(); }
    size_t held_granules() const { return held_; }
    bool held(GranuleId granule) const {
        return granule < uses_.size() && uses_[granule] != Use::released;
    }

    // granules[i], free until now, lies behind place first + i, unmapped until now.
    Result<void> map(RangeId range, size_t first, std::span<const GranuleId> granules);
    // Places [first, first + count), all mapped until now; answers what lay there.
    Result<std::vector<GranuleId>> unmap(RangeId range, size_t first, size_t count);

  private:
    enum class Use : uint8_t { released, free, mapped };
    struct Range {
        bool exists = false;
        std::vector<GranuleId> granules;  // [places]
    };

    Result<Range*> checked(RangeId range, size_t first, size_t count);
    Result<void> change_use(std::span<const GranuleId> granules, Use from, Use to);

    std::vector<Range> ranges_;
    std::vector<Use> uses_;  // [granules]
    size_t held_ = 0;
};

// Granules from `begin` on whose ids follow one another: the index behind the last.
size_t run_end(std::span<const GranuleId> granules, size_t begin);

}  // namespace granary::gpu

// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/gpu/ptx/early.h"

#include <algorithm>

namespace granary::test::ptx {

void EarlyLaunches::begin(const std::string& kernel, bool early) {
    if (!early) launches_.clear();
    Launch launch;
    launch.kernel = kernel;
    if (!launches_.empty()) {
        Launch& before = launches_.back();
        // It let this one begin before it knew that those ahead of it had ended, or after.
        launch.may_run = 1 + (before.all_blocks_first ? before.may_run : 0);
        std::sort(before.writes.begin(), before.writes.end(),
                  [](const Range& a, const Range& b) { return a.begin < b.begin; });
        std::vector<Range> merged;
        for (const Range& range : before.writes) {
            if (!merged.empty() && range.begin <= merged.back().end)
                merged.back().end = std::max(merged.back().end, range.end);
            else
                merged.push_back(range);
        }
        before.writes = std::move(merged);
    }
    launches_.push_back(std::move(launch));
    while (launches_.size() > launches_.back().may_run + 1) launches_.pop_front();
}

std::string EarlyLaunches::writer_of(uint64_t begin, uint64_t end) const {
    for (size_t i = 0; i + 1 < launches_.size(); ++i) {
        const std::vector<Range>& writes = launches_[i].writes;
        // The first that ends behind `begin`.
        const auto found = std::partition_point(
            writes.begin(), writes.end(), [&](const Range& range) { return range.end <= begin; });
        if (found != writes.end() && found->begin < end) return launches_[i].kernel;
    }
    return {};
}

}  // namespace granary::test::ptx

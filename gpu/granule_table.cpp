// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/granule_table.h"

#include <algorithm>
#include <string>
#include <utility>

namespace granary::gpu {
namespace {

tl::unexpected<Error> wrong_call(std::string what, std::string detail) {
    return fail(ErrorKind::internal, std::move(what), std::move(detail));
}

std::string place_text(RangeId range, size_t place) {
    return "range " + std::to_string(range) + ", place " + std::to_string(place);
}

}  // namespace

RangeId GranuleTable::add_range(size_t places) {
    ranges_.push_back({true, std::vector<GranuleId>(places, kNone)});
    return static_cast<RangeId>(ranges_.size() - 1);
}

void GranuleTable::remove_range(RangeId range) {
    for (GranuleId granule : places(range))
        if (granule != kNone) uses_[granule] = Use::free;
    if (range < ranges_.size()) ranges_[range] = {};
}

std::span<const GranuleId> GranuleTable::places(RangeId range) const {
    if (range >= ranges_.size()) return {};
    return ranges_[range].granules;
}

Result<GranuleTable::Range*> GranuleTable::checked(RangeId range, size_t first, size_t count) {
    if (range >= ranges_.size() || !ranges_[range].exists)
        return wrong_call("This range does not exist", std::to_string(range));
    const size_t places = ranges_[range].granules.size();
    if (first > places || count > places - first)
        return wrong_call("Places outside their range were named",
                          place_text(range, first) + ", " + std::to_string(count) + " of them, " +
                              std::to_string(places) + " exist");
    return &ranges_[range];
}

Result<void> GranuleTable::change_use(std::span<const GranuleId> granules, Use from, Use to) {
    for (size_t i = 0; i < granules.size(); ++i) {
        const GranuleId granule = granules[i];
        if (granule < uses_.size() && uses_[granule] == from) {
            uses_[granule] = to;
            continue;
        }
        // Named twice, it is in the new use already: what that use says is the reason then too.
        const char* const what = granule >= uses_.size()           ? "This granule does not exist"
                                 : uses_[granule] == Use::mapped   ? "A granule is mapped already"
                                 : uses_[granule] == Use::released ? "A granule was given back"
                                                                   : "A granule is held";
        for (size_t done = 0; done < i; ++done) uses_[granules[done]] = from;
        return wrong_call(what, "granule " + std::to_string(granule));
    }
    return {};
}

Result<void> GranuleTable::check_addition(size_t count) const {
    if (count > kNone - uses_.size())
        return wrong_call("More granules were asked for than can be numbered",
                          std::to_string(count));
    return {};
}

void GranuleTable::add_granules(size_t count) {
    uses_.resize(uses_.size() + count, Use::free);
    held_ += count;
}

Result<void> GranuleTable::release(std::span<const GranuleId> granules) {
    if (auto r = change_use(granules, Use::free, Use::released); !r) return r;
    held_ -= granules.size();
    return {};
}

Result<void> GranuleTable::recreate(std::span<const GranuleId> granules) {
    if (auto r = change_use(granules, Use::released, Use::free); !r) return r;
    held_ += granules.size();
    return {};
}

Result<void> GranuleTable::map(RangeId range, size_t first, std::span<const GranuleId> granules) {
    const Result<Range*> found = checked(range, first, granules.size());
    if (!found) return tl::unexpected(found.error());
    std::vector<GranuleId>& places = (*found)->granules;
    for (size_t place = first; place < first + granules.size(); ++place)
        if (places[place] != kNone)
            return wrong_call("A place is mapped already", place_text(range, place));
    if (auto r = change_use(granules, Use::free, Use::mapped); !r) return r;
    std::copy(granules.begin(), granules.end(), places.begin() + static_cast<ptrdiff_t>(first));
    return {};
}

Result<std::vector<GranuleId>> GranuleTable::unmap(RangeId range, size_t first, size_t count) {
    const Result<Range*> found = checked(range, first, count);
    if (!found) return tl::unexpected(found.error());
    const auto begin = (*found)->granules.begin() + static_cast<ptrdiff_t>(first);
    const auto end = begin + static_cast<ptrdiff_t>(count);
    if (const auto hole = std::find(begin, end, kNone); hole != end)
        return wrong_call("A place is not mapped",
                          place_text(range, first + static_cast<size_t>(hole - begin)));
    std::vector<GranuleId> granules(begin, end);
    std::fill(begin, end, kNone);
    for (GranuleId granule : granules) uses_[granule] = Use::free;
    return granules;
}

size_t run_end(std::span<const GranuleId> granules, size_t begin) {
    size_t end = begin + 1;
    while (end < granules.size() && granules[end] == granules[end - 1] + 1) ++end;
    return end;
}

}  // namespace granary::gpu

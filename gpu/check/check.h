// SPDX-License-Identifier: GPL-3.0-or-later
// How checks are written. A check is a function that ends by returning a line of figures, or by
// throwing: need() and expect() throw, run_checks() catches, nothing else does either.
#pragma once

#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpu/check/card.h"
#include "gpu/check/checks.h"

namespace granary::gpu::check {

struct Failed {
    std::string reason;
};
struct NotApplicable {
    std::string reason;
};

template <class T>
T need(Result<T> result) {
    if (!result) throw Failed{result.error().message()};
    if constexpr (!std::is_void_v<T>) return std::move(*result);
}
inline void expect(bool holds, const std::string& otherwise) {
    if (!holds) throw Failed{otherwise};
}
inline void expect_equal(uint64_t is, uint64_t should, const std::string& what) {
    if (is != should)
        throw Failed{what + ": " + std::to_string(is) + " instead of " + std::to_string(should)};
}

// A card whose mappings and contents are written down, so that they can be compared.
class Pool {
  public:
    // `granules` of them, and two ranges with a place for each.
    Pool(Subject& subject, size_t granules);

    Card& card() { return *card_; }
    DeviceMemory& memory() { return card_->memory(); }
    RangeId a() const { return a_; }
    RangeId b() const { return b_; }
    size_t granule_bytes() { return memory().info().granule_bytes; }
    std::byte* at(RangeId range, size_t place) {
        return memory().base(range) + place * granule_bytes();
    }

    void map(RangeId range, size_t first, std::span<const GranuleId> granules);
    void unmap(RangeId range, size_t first, size_t count);
    // A new pattern for the granule behind a place, written through that place.
    void write(RangeId range, size_t place);
    void write_all();  // through every mapped place
    // Every mapped place shows the pattern that was last written to its granule.
    void compare(RangeId range, size_t place);
    void compare_all();
    size_t mapped_places() const;

  private:
    std::unique_ptr<Card> card_;
    RangeId a_ = 0, b_ = 0;
    std::map<std::pair<RangeId, size_t>, GranuleId> places_;
    std::vector<uint64_t> patterns_;  // [granules], 0: never written
    uint64_t next_pattern_ = 1;
};

// Ids from `first` on.
std::vector<GranuleId> ids(GranuleId first, size_t count);
// `text` with a word in the right number: "3 granules".
std::string counted(uint64_t count, const char* word);

struct Check {
    const char* name;
    const char* promise;
    std::string (*run)(Subject&, const Limits&);
};
std::vector<Check> memory_checks();
std::vector<Check> fault_checks();

}  // namespace granary::gpu::check

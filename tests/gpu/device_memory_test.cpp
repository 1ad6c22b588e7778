// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/host/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <string>

namespace granary::gpu::host {
namespace {

constexpr size_t kGranule = 64 * 1024;

std::vector<GranuleId> ids(GranuleId first, size_t count) {
    std::vector<GranuleId> list(count);
    std::iota(list.begin(), list.end(), first);
    return list;
}

// The first and last word of a place: both ends of its granule.
void write_place(std::byte* base, size_t place, size_t granule_bytes, uint64_t value) {
    std::memcpy(base + place * granule_bytes, &value, sizeof value);
    std::memcpy(base + (place + 1) * granule_bytes - sizeof value, &value, sizeof value);
}
uint64_t read_place(const std::byte* base, size_t place, size_t granule_bytes) {
    uint64_t first = 0, last = 0;
    std::memcpy(&first, base + place * granule_bytes, sizeof first);
    std::memcpy(&last, base + (place + 1) * granule_bytes - sizeof last, sizeof last);
    return first == last ? first : ~uint64_t{0};
}

class MemoryOf : public testing::TestWithParam<size_t> {};

TEST_P(MemoryOf, ContentFollowsTheGranuleFromRangeToRange) {
    const size_t granule = GetParam();
    Memory memory(granule);
    const RangeId a = memory.reserve(8).value(), b = memory.reserve(8).value();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.base(a)) % granule, 0u);
    ASSERT_TRUE(memory.create(8));
    ASSERT_TRUE(memory.map(a, 0, ids(0, 8)));
    for (size_t place = 0; place < 8; ++place) {
        EXPECT_EQ(read_place(memory.base(a), place, granule), 0u);  // new memory is empty
        write_place(memory.base(a), place, granule, 100 + place);
    }
    ASSERT_TRUE(memory.unmap(a, 2, 4));
    ASSERT_TRUE(memory.map(b, 1, std::vector<GranuleId>{5, 3, 4, 2}));
    EXPECT_EQ(read_place(memory.base(b), 1, granule), 105u);
    EXPECT_EQ(read_place(memory.base(b), 2, granule), 103u);
    EXPECT_EQ(read_place(memory.base(b), 3, granule), 104u);
    EXPECT_EQ(read_place(memory.base(b), 4, granule), 102u);
    EXPECT_EQ(read_place(memory.base(a), 1, granule), 101u);
    EXPECT_EQ(read_place(memory.base(a), 6, granule), 106u);
    // Written through one range, read through the other.
    write_place(memory.base(b), 4, granule, 7);
    ASSERT_TRUE(memory.unmap(b, 4, 1));
    ASSERT_TRUE(memory.map(a, 2, ids(2, 1)));
    EXPECT_EQ(read_place(memory.base(a), 2, granule), 7u);
}

INSTANTIATE_TEST_SUITE_P(GranuleSizes, MemoryOf,
                         testing::Values(4096, kGranule, 3 * 4096, 2 << 20, 4 << 20));

TEST(HostMemory, CountsGranulesAndBytes) {
    Memory memory(kGranule);
    EXPECT_EQ(memory.granules(), 0u);
    ASSERT_TRUE(memory.create(0));
    ASSERT_TRUE(memory.create(5));
    ASSERT_TRUE(memory.create(3));
    EXPECT_EQ(memory.granules(), 8u);
    EXPECT_EQ(memory.bytes(), 8 * kGranule);
    EXPECT_EQ(memory.system_bytes(), 8 * kGranule);  // taken before anything is touched
    const RangeId range = memory.reserve(8).value();
    EXPECT_EQ(memory.places(range), 8u);
    ASSERT_TRUE(memory.map(range, 0, ids(0, 8)));  // both batches
    write_place(memory.base(range), 7, kGranule, 1);
    memory.release(range);
    EXPECT_EQ(memory.base(range), nullptr);
    EXPECT_EQ(memory.places(range), 0u);
    const RangeId again = memory.reserve(8).value();
    EXPECT_NE(again, range);
    ASSERT_TRUE(memory.map(again, 0, ids(0, 8)));  // release freed them
    EXPECT_EQ(read_place(memory.base(again), 7, kGranule), 1u);
}

TEST(HostMemory, AnswersWrongCallsWithErrorsAndChangesNothing) {
    Memory memory(kGranule);
    const RangeId range = memory.reserve(4).value();
    ASSERT_TRUE(memory.create(4));
    ASSERT_TRUE(memory.map(range, 1, ids(1, 1)));
    const size_t mappings = memory.mappings();

    const auto refused = [&](const Result<void>& result) {
        return !result && result.error().kind == ErrorKind::internal &&
               memory.mappings() == mappings;
    };
    EXPECT_TRUE(refused(memory.map(range, 1, ids(0, 1))));  // place taken
    EXPECT_TRUE(refused(memory.map(range, 0, ids(2, 2))));  // second place taken
    EXPECT_TRUE(refused(memory.map(range, 2, ids(1, 1))));  // granule taken
    EXPECT_TRUE(refused(memory.map(range, 2, std::vector<GranuleId>{2, 2})));
    EXPECT_TRUE(refused(memory.map(range, 2, std::vector<GranuleId>{3, 4})));  // no granule 4
    EXPECT_TRUE(refused(memory.map(range, 3, ids(2, 2))));                     // past the end
    EXPECT_TRUE(refused(memory.map(range, ~size_t{0}, ids(2, 2))));
    EXPECT_TRUE(refused(memory.map(range + 1, 0, ids(2, 2))));
    EXPECT_TRUE(refused(memory.unmap(range, 0, 2)));  // place 0 is not mapped
    EXPECT_TRUE(refused(memory.unmap(range, 4, 1)));
    EXPECT_TRUE(refused(memory.unmap(range, 1, ~size_t{0})));
    EXPECT_TRUE(refused(memory.unmap(range + 1, 0, 1)));
    EXPECT_FALSE(memory.reserve(0));
    EXPECT_EQ(memory.reserve(~size_t{0}).error().kind, ErrorKind::out_of_memory);
    EXPECT_EQ(memory.reserve(size_t{1} << 40).error().kind, ErrorKind::out_of_memory);
    EXPECT_EQ(memory.base(77), nullptr);
    memory.release(77);

    // All that was refused is still free.
    EXPECT_TRUE(memory.map(range, 2, ids(2, 2)));
    EXPECT_TRUE(memory.map(range, 0, ids(0, 1)));
    EXPECT_TRUE(memory.unmap(range, 0, 4));
    EXPECT_TRUE(memory.map(range, 4, {}));  // nothing at the very end
    EXPECT_TRUE(memory.unmap(range, 4, 0));
}

TEST(HostMemory, GivesGranulesBackAndTakesThemAgain) {
    Memory memory(kGranule);
    const RangeId range = memory.reserve(8).value();
    ASSERT_TRUE(memory.create(8));
    ASSERT_TRUE(memory.map(range, 0, ids(0, 8)));
    for (size_t place = 0; place < 8; ++place)
        write_place(memory.base(range), place, kGranule, 100 + place);
    ASSERT_TRUE(memory.unmap(range, 2, 4));
    const std::vector<GranuleId> given{4, 2, 3};
    ASSERT_TRUE(memory.release_granules(given));
    EXPECT_EQ(memory.granules(), 8u);
    EXPECT_EQ(memory.bytes(), 5 * kGranule);
    EXPECT_EQ(memory.system_bytes(), 5 * kGranule);
    for (GranuleId granule = 0; granule < 9; ++granule)
        EXPECT_EQ(memory.held(granule), granule < 8 && (granule < 2 || granule > 4)) << granule;

    const auto refused = [&](const Result<void>& result) {
        return !result && result.error().kind == ErrorKind::internal &&
               memory.system_bytes() == 5 * kGranule && memory.bytes() == 5 * kGranule;
    };
    EXPECT_TRUE(refused(memory.map(range, 2, ids(2, 1))));
    EXPECT_TRUE(refused(memory.release_granules(ids(2, 1))));
    EXPECT_TRUE(refused(memory.release_granules(ids(0, 1))));  // mapped
    EXPECT_TRUE(refused(memory.release_granules(std::vector<GranuleId>{5, 5})));
    EXPECT_TRUE(refused(memory.release_granules(std::vector<GranuleId>{5, 8})));
    EXPECT_TRUE(refused(memory.recreate(ids(2, 4))));  // 5 is held
    EXPECT_TRUE(refused(memory.recreate(std::vector<GranuleId>{2, 2})));
    EXPECT_TRUE(refused(memory.recreate(ids(8, 1))));
    ASSERT_TRUE(memory.release_granules({}));
    ASSERT_TRUE(memory.recreate({}));

    // New ids go behind those that were given back.
    ASSERT_TRUE(memory.create(1));
    ASSERT_TRUE(memory.map(range, 5, ids(8, 1)));
    ASSERT_TRUE(memory.recreate(given));
    EXPECT_EQ(memory.system_bytes(), 9 * kGranule);
    EXPECT_EQ(memory.bytes(), 9 * kGranule);
    ASSERT_TRUE(memory.map(range, 2, ids(2, 3)));
    for (size_t place = 2; place < 5; ++place) {  // empty and usable
        EXPECT_EQ(read_place(memory.base(range), place, kGranule), 0u);
        write_place(memory.base(range), place, kGranule, place);
    }
    EXPECT_EQ(read_place(memory.base(range), 1, kGranule), 101u);
    EXPECT_EQ(read_place(memory.base(range), 6, kGranule), 106u);
    EXPECT_EQ(memory.system_bytes(), 9 * kGranule);
}

TEST(HostMemory, RefusesWhatTheSystemCannotGive) {
    Memory memory(2 << 20);
    ASSERT_TRUE(memory.create(1));
    const Result<void> created = memory.create(size_t{1} << 30);  // 2 PiB
    ASSERT_FALSE(created);
    EXPECT_EQ(created.error().kind, ErrorKind::out_of_memory);
    EXPECT_EQ(memory.granules(), 1u);
    EXPECT_TRUE(memory.create(1));
}

TEST(HostMemory, LimitsItsMappings) {
    constexpr size_t kPlaces = 2 * Memory::kMostMappings;
    Memory memory(4096);
    const RangeId range = memory.reserve(kPlaces).value();
    ASSERT_TRUE(memory.create(kPlaces));
    ASSERT_TRUE(memory.map(range, 0, ids(0, kPlaces)));
    EXPECT_EQ(memory.mappings(), 1u);  // granules in order share one
    std::vector<GranuleId> scattered(kPlaces);
    for (size_t i = 0; i < kPlaces; ++i)
        scattered[i] = static_cast<GranuleId>(i < kPlaces / 2 ? 2 * i + 1 : 2 * i - kPlaces);
    ASSERT_TRUE(memory.unmap(range, 0, kPlaces));
    const Result<void> mapped = memory.map(range, 0, scattered);
    ASSERT_FALSE(mapped);
    EXPECT_NE(mapped.error().message().find("60000 separate mappings, 30000 are allowed"),
              std::string::npos)
        << mapped.error().message();
    EXPECT_EQ(memory.mappings(), 1u);
    EXPECT_TRUE(memory.map(range, 0, std::span(scattered).first(1000)));
    EXPECT_EQ(memory.mappings(), 1001u);
    ASSERT_TRUE(memory.unmap(range, 0, 1000));
    // Holes count too.
    ASSERT_TRUE(memory.map(range, 0, ids(0, kPlaces)));
    size_t place = 0;
    while (place < kPlaces && memory.unmap(range, place, 1)) place += 2;
    ASSERT_LT(place, kPlaces);
    EXPECT_EQ(memory.mappings(), Memory::kMostMappings);
    EXPECT_TRUE(memory.unmap(range, place - 1, 1));  // widens a hole and adds none
}

// Mappings of granules as the system counts them.
size_t system_mappings() {
    std::ifstream maps("/proc/self/maps");
    size_t count = 0;
    for (std::string line; std::getline(maps, line);)
        count += line.find("granary-device") != std::string::npos;
    return count;
}

using Places = std::map<size_t, GranuleId>;  // mapped place -> granule

// Runs of granules that follow one another, and runs of holes between and around them.
std::pair<size_t, size_t> runs_and_holes(const Places& model, size_t places) {
    size_t runs = 0, holes = 0;
    for (size_t place = 0; place < places; ++place) {
        const auto here = model.find(place), before = model.find(place - 1);
        if (here == model.end())
            holes += place == 0 || before != model.end();
        else
            runs += before == model.end() || before->second + 1 != here->second;
    }
    return {runs, holes};
}

// Random calls, right and wrong ones, against a table of what each place must hold.
TEST(HostMemory, AgreesWithASimpleModel) {
    constexpr size_t kRanges = 3, kPlaces = 40, kGranules = 64, kSize = 4096;
    Memory memory(kSize);
    std::mt19937 random(1);
    const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
    ASSERT_TRUE(memory.create(kGranules));
    std::vector<RangeId> ranges;
    for (size_t i = 0; i < kRanges; ++i) ranges.push_back(memory.reserve(kPlaces).value());
    std::vector<Places> model(kRanges);
    std::vector<bool> taken(kGranules, false);
    std::vector<uint64_t> content(kGranules, 0);
    size_t successes = 0, refusals = 0;

    for (int step = 0; step < 20'000; ++step) {
        const size_t r = below(kRanges), first = below(kPlaces + 2), count = 1 + below(8);
        const bool inside = first + count <= kPlaces;
        bool valid = inside;
        if (below(2) == 0) {
            std::vector<GranuleId> granules;
            if (below(4) == 0) {  // any, often wrong
                for (size_t i = 0; i < count; ++i)
                    granules.push_back(static_cast<GranuleId>(below(kGranules + 1)));
            } else {  // free ones, in order or shuffled
                for (GranuleId g = 0; g < kGranules && granules.size() < count; ++g)
                    if (!taken[g]) granules.push_back(g);
                if (below(2) == 0) std::shuffle(granules.begin(), granules.end(), random);
            }
            std::vector<bool> after = taken;
            valid = first + granules.size() <= kPlaces;
            for (size_t i = 0; valid && i < granules.size(); ++i) {
                valid =
                    granules[i] < kGranules && !after[granules[i]] && !model[r].contains(first + i);
                if (valid) after[granules[i]] = true;
            }
            ASSERT_EQ(memory.map(ranges[r], first, granules).has_value(), valid) << step;
            if (valid) {
                taken = after;
                for (size_t i = 0; i < granules.size(); ++i) model[r][first + i] = granules[i];
            }
        } else {
            for (size_t i = 0; valid && i < count; ++i) valid = model[r].contains(first + i);
            ASSERT_EQ(memory.unmap(ranges[r], first, count).has_value(), valid) << step;
            for (size_t i = 0; valid && i < count; ++i) {
                taken[model[r].at(first + i)] = false;
                model[r].erase(first + i);
            }
        }
        ++(valid ? successes : refusals);
        // Each mapped place shows its granule's content, wherever that was written.
        if (step % 8 != 0) continue;
        for (size_t range = 0; range < kRanges; ++range) {
            for (const auto& [place, granule] : model[range]) {
                std::byte* const base = memory.base(ranges[range]);
                ASSERT_EQ(read_place(base, place, kSize), content[granule]) << step;
                content[granule] = random();
                write_place(base, place, kSize, content[granule]);
            }
        }
        size_t runs = 0, holes = 0;
        for (const Places& range : model) {
            const auto [range_runs, range_holes] = runs_and_holes(range, kPlaces);
            runs += range_runs;
            holes += range_holes;
        }
        ASSERT_EQ(memory.mappings(), runs + holes) << step;
        if (step % 512 != 0) continue;
        // Ranges that happen to be neighbours may share a mapping at their border.
        EXPECT_LE(system_mappings(), runs);
        EXPECT_GE(system_mappings() + kRanges - 1, runs);
    }
    EXPECT_EQ(memory.system_bytes(), kGranules * kSize);
    EXPECT_GT(successes, 2'000u);
    EXPECT_GT(refusals, 2'000u);
}

}  // namespace
}  // namespace granary::gpu::host

// SPDX-License-Identifier: GPL-3.0-or-later
#include "granary/telemetry.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <set>
#include <string>
#include <thread>

namespace {
thread_local uint64_t allocations = 0;
}

// Counts what the calling thread allocates; both forms that vectors and strings use end here.
void* operator new(size_t bytes) {
    ++allocations;
    if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
    std::abort();
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
    std::free(memory);
}

namespace granary {
namespace {

TEST(Owner, NamesAreThoseOfTheDesign) {
    std::string all;
    for (int owner = 0; owner < kOwners; ++owner)
        all += std::string(owner_name(static_cast<Owner>(owner))) + " ";
    EXPECT_EQ(all, "spare fixed workspace state kv loan experts quarantined ");
    EXPECT_EQ(owner_name(static_cast<Owner>(kOwners)), "unknown");
}

TEST(GranuleWord, KeepsItsParts) {
    for (int owner = 0; owner < kOwners; ++owner) {
        const auto word = GranuleWord::make(
            static_cast<Owner>(owner), GranuleWord::in_transfer | GranuleWord::empty_slot,
            0xabcdef, 63, 0x3fffff);
        EXPECT_EQ(word.owner(), static_cast<Owner>(owner));
        EXPECT_EQ(word.flags(), GranuleWord::in_transfer | GranuleWord::empty_slot);
        EXPECT_EQ(word.id(), 0xabcdefu);
        EXPECT_EQ(word.hits_log2(), 63u);
        EXPECT_EQ(word.last_use(), 0x3fffffu);
    }
    // Values that are too large are cut and spill into no neighbour.
    const auto word = GranuleWord::make(Owner::kv, 0, 0xff000001, 64, 0xffc00001);
    EXPECT_EQ(word, GranuleWord::make(Owner::kv, 0, 1, 0, 1));
}

TEST(MapChannel, GivesTheNewestFrameOnce) {
    MapChannel channel;
    EXPECT_EQ(channel.take(), nullptr);
    EXPECT_EQ(channel.front().sequence, 0u);
    for (int i = 1; i <= 3; ++i) {
        channel.back().granule_bytes = static_cast<uint64_t>(i);
        channel.publish();
    }
    const MapFrame* frame = channel.take();
    ASSERT_NE(frame, nullptr);
    EXPECT_EQ(frame->granule_bytes, 3u);
    EXPECT_EQ(frame->sequence, 3u);
    EXPECT_EQ(channel.take(), nullptr);
    EXPECT_EQ(&channel.front(), frame);
    // What the reader holds stays as it is, however much is published.
    for (uint64_t i = 4; i < 10; ++i) {
        channel.back().granule_bytes = i;
        channel.publish();
        EXPECT_EQ(frame->granule_bytes, 3u);
    }
    EXPECT_EQ(channel.take()->sequence, 9u);
}

// A frame whose every part says the same number: a torn one could not.
void fill(MapFrame& frame, uint64_t number) {
    constexpr size_t kGranules = 640;
    frame.seconds = static_cast<double>(number);
    frame.granule_bytes = number;
    frame.words.assign(kGranules, GranuleWord{number});
    frame.places.assign(kGranules, Place{1, static_cast<uint32_t>(number)});
    frame.ranges.resize(3);
    for (RangeInfo& range : frame.ranges) {
        range.name = "a range with a name too long for the string itself";
        range.places = static_cast<uint32_t>(number);
    }
    frame.granules.fill(static_cast<uint32_t>(number));
    frame.experts_per_layer = static_cast<uint32_t>(number);
}

TEST(MapChannel, NeverTearsAFrameBetweenThreads) {
    constexpr uint64_t kFrames = 20'000;
    MapChannel channel;
    std::thread writer([&] {
        for (uint64_t number = 1; number <= kFrames; ++number) {
            fill(channel.back(), number);
            channel.publish();
        }
    });
    uint64_t last = 0;
    while (last < kFrames) {
        const MapFrame* frame = channel.take();
        if (frame == nullptr) {
            std::this_thread::yield();
            continue;
        }
        const uint64_t number = frame->sequence;
        ASSERT_GT(number, last);
        last = number;
        ASSERT_EQ(frame->granule_bytes, number);
        for (const GranuleWord& word : frame->words) ASSERT_EQ(word.bits, number);
        for (const Place& place : frame->places) ASSERT_EQ(place.place, number);
        for (uint32_t sum : frame->granules) ASSERT_EQ(sum, number);
        ASSERT_EQ(frame->ranges.size(), 3u);
    }
    writer.join();
}

TEST(MapChannel, AllocatesNothingOnceItsFramesAreFilled) {
    MapChannel channel;
    uint64_t number = 0;
    const auto publish = [&] {
        fill(channel.back(), ++number);
        channel.publish();
        channel.take();
    };
    for (int i = 0; i < 4; ++i) publish();
    const uint64_t before = allocations;
    for (int i = 0; i < 1000; ++i) publish();
    EXPECT_EQ(allocations, before);
    std::string counted(100, 'x');  // the counter works
    EXPECT_GT(allocations, before);
}

TEST(EventRing, IsFirstInFirstOutAndDropsWhenFull) {
    EventRing ring(3);  // four
    MemoryEvent event;
    EXPECT_FALSE(ring.pop(event));
    for (uint64_t round = 0; round < 10; ++round) {
        for (uint64_t i = 0; i < 4; ++i) {
            event.cells = round * 4 + i;
            EXPECT_TRUE(ring.push(event));
        }
        EXPECT_FALSE(ring.push(event));
        for (uint64_t i = 0; i < 4; ++i) {
            ASSERT_TRUE(ring.pop(event));
            EXPECT_EQ(event.cells, round * 4 + i);
        }
        EXPECT_FALSE(ring.pop(event));
    }
}

TEST(EventRing, TakesAnyCapacity) {
    for (size_t capacity : {size_t{0}, size_t{1}, ~size_t{0}}) {
        EventRing ring(capacity);
        MemoryEvent event;
        EXPECT_TRUE(ring.push(event));
        EXPECT_TRUE(ring.pop(event));
    }
}

TEST(EventRing, LosesNothingItAcceptedBetweenThreads) {
    constexpr uint64_t kEvents = 200'000;
    Telemetry telemetry;
    std::thread producer([&] {
        MemoryEvent event;
        for (uint64_t i = 1; i <= kEvents; ++i) {
            event.cells = i;
            event.granules = static_cast<uint32_t>(i);
            if (!telemetry.events.push(event)) ++telemetry.counters.events_dropped;
        }
        event.cells = kEvents + 1;  // the last one must arrive
        event.granules = kEvents + 1;
        while (!telemetry.events.push(event)) std::this_thread::yield();
    });
    uint64_t last = 0, seen = 0;
    MemoryEvent event;
    while (last <= kEvents) {
        if (!telemetry.events.pop(event)) {
            std::this_thread::yield();
            continue;
        }
        ASSERT_GT(event.cells, last);
        ASSERT_EQ(event.granules, static_cast<uint32_t>(event.cells));
        last = event.cells;
        ++seen;
    }
    producer.join();
    EXPECT_EQ(seen + telemetry.counters.events_dropped, kEvents + 1);
}

}  // namespace
}  // namespace granary

// SPDX-License-Identifier: GPL-3.0-or-later
// Recordings: what is read is what was written, and no file does harm.
#include "granary/trace.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <random>

namespace granary::test {
namespace {

constexpr uint32_t kGranules = 300;

MapFrame frame_at(double seconds, std::mt19937& random) {
    MapFrame frame;
    frame.seconds = seconds;
    frame.granule_bytes = 65536;
    frame.experts_per_layer = 8;
    frame.ranges = {{"fixed", 300}, {"K/V " + std::to_string(random() % 3), 400}};
    for (uint32_t id = 0; id < kGranules; ++id) {
        const auto owner = static_cast<Owner>(random() % kOwners);
        frame.words.push_back(GranuleWord::make(owner, random() % 2 ? GranuleWord::given_back : 0,
                                                random() % 5000, random() % 8, random() % 99));
        frame.places.push_back(
            random() % 3 ? Place{static_cast<uint16_t>(random() % 2), uint32_t(id)} : Place{});
    }
    return frame;
}

TraceHeader header() {
    return {"a model \xff", "a card", {"kv k8v4", "prefill 64"}, 65536, kGranules, 8};
}

std::string gzipped(const std::string& text) {
    z_stream stream{};
    EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
    std::string bytes(deflateBound(&stream, text.size()), '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
    stream.avail_out = static_cast<uInt>(bytes.size());
    EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
    bytes.resize(stream.total_out);
    deflateEnd(&stream);
    return bytes;
}

std::string refusal_of(const std::string& text) {
    const auto reader = TraceReader::open(gzipped(text));
    return reader ? "none" : reader.error().message();
}

TEST(Trace, IsReadAsItWasWritten) {
    std::mt19937 random(3);
    std::vector<MapFrame> frames;
    TraceWriter writer(header());
    for (int i = 0; i < 20; ++i) {
        frames.push_back(i % 4 ? frames.back() : frame_at(i, random));
        frames.back().seconds = i;
        ASSERT_TRUE(writer.add(frames.back(), {uint64_t(i), 20, 3, 1ull << 40, 0}));
    }
    auto reader = TraceReader::open(writer.bytes());
    ASSERT_TRUE(reader) << reader.error().message();
    EXPECT_EQ(reader->header().settings, header().settings);
    EXPECT_EQ(reader->frames(), frames.size());
    MapFrame got;
    TraceCounts counts;
    for (size_t i = 0; i < frames.size(); ++i) {
        auto more = reader->next(got, counts);
        ASSERT_TRUE(more && *more);
        EXPECT_EQ(got.seconds, frames[i].seconds);
        EXPECT_EQ(got.ranges, frames[i].ranges);
        EXPECT_EQ(got.places, frames[i].places);
        for (uint32_t id = 0; id < kGranules; ++id) {
            EXPECT_EQ(got.words[id].owner(), frames[i].words[id].owner());
            EXPECT_EQ(got.words[id].flags(), frames[i].words[id].flags());
            EXPECT_EQ(got.words[id].id(), frames[i].words[id].id());
        }
        EXPECT_EQ(counts.prompt_done, i);
        EXPECT_EQ(counts.bytes_copied, 1ull << 40);
    }
    const auto end = reader->next(got, counts);
    EXPECT_TRUE(end && !*end);
}

TEST(Trace, FilesOfOtherKindsAreRefusedWithTheReason) {
    EXPECT_NE(refusal_of("{\"granary_trace\":2}\n").find("version 2, this program reads 1"),
              std::string::npos);
    EXPECT_NE(refusal_of("{}\n").find("line 1: "), std::string::npos);
    // Small files that would unpack to very much.
    EXPECT_NE(refusal_of(std::string(4 << 20, '\n')).find("too short"), std::string::npos);
    EXPECT_NE(refusal_of(std::string(TraceWriter::kMostBytes + (2 << 20), ' ')).find("longer than"),
              std::string::npos);
}

TEST(Trace, DamagedFilesAreRefusedOrHarmless) {
    std::mt19937 random(4);
    TraceWriter writer(header());
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(writer.add(frame_at(i, random), {}));
    const std::string good = writer.bytes();
    EXPECT_FALSE(TraceReader::open(""));
    EXPECT_FALSE(TraceReader::open("no gzip"));
    EXPECT_FALSE(TraceReader::open(good.substr(0, good.size() / 2)));
    for (int i = 0; i < 2000; ++i) {
        std::string bad = good;
        for (int n = 0; n <= i % 4; ++n) bad[random() % bad.size()] ^= 1 << random() % 8;
        auto reader = TraceReader::open(bad);
        MapFrame frame;
        TraceCounts counts;
        for (bool more = reader.has_value(); more;) {
            auto next = reader->next(frame, counts);
            more = next && *next;
            if (!more) break;
            for (const Place& place : frame.places)
                if (place.range != Place::kNowhere) {
                    ASSERT_LT(place.range, frame.ranges.size());
                    ASSERT_LT(place.place, frame.ranges[place.range].places);
                }
        }
    }
    // A frame of other granules is no part of a recording.
    MapFrame other = frame_at(9, random);
    other.words.pop_back();
    EXPECT_FALSE(writer.add(other, {}));
}

}  // namespace
}  // namespace granary::test

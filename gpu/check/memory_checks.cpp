// SPDX-License-Identifier: GPL-3.0-or-later
// Pool, mapping, graphs, and the driver's figures.
#include <algorithm>
#include <cstring>
#include <random>

#include "gpu/check/check.h"

namespace granary::gpu::check {
namespace {

std::string pool(Subject& subject, const Limits& limits) {
    const auto card = need(subject.open());
    DeviceMemory& memory = card->memory();
    const size_t granule = memory.info().granule_bytes;
    const uint64_t asked = memory.driver_allocations(), before = need(card->free_bytes());
    need(memory.create_granules(limits.granules));
    expect_equal(memory.granules(), limits.granules, "granules");
    expect_equal(memory.driver_bytes(), limits.granules * uint64_t{granule}, "bytes held");
    expect_equal(memory.driver_allocations(), asked + 1, "calls to the driver");
    const uint64_t taken = before - need(card->free_bytes());
    expect_equal(taken, limits.granules * uint64_t{granule}, "bytes that the driver gave");
    const RangeId range = need(memory.reserve(limits.granules));
    expect(reinterpret_cast<uintptr_t>(memory.base(range)) % granule == 0,
           "a range does not begin at a multiple of its granules");
    return counted(limits.granules, "granule") + " of " + format_bytes(granule) + ", " +
           format_bytes(taken) + " taken from the driver";
}

std::string map(Subject& subject, const Limits& limits) {
    Pool pool(subject, limits.granules);
    pool.map(pool.a(), 0, ids(0, limits.granules));
    pool.write_all();
    pool.compare_all();
    // One kernel over all places: neighbours are one piece of memory.
    const size_t bytes = limits.granules * pool.granule_bytes();
    need(pool.card().write(pool.at(pool.a(), 0), bytes, 7777));
    expect_equal(need(pool.card().wrong_words(pool.at(pool.a(), 0), bytes, 7777)), 0,
                 "wrong words over all places");
    expect_equal(need(pool.card().wrong_words(pool.at(pool.a(), 0), bytes, 7778)), bytes / 8,
                 "words that differ from another pattern");
    return counted(limits.granules, "place") + ", singly and in one run";
}

std::string remap(Subject& subject, const Limits& limits) {
    Pool pool(subject, limits.granules);
    const size_t count = limits.granules;
    std::mt19937 random(1);
    std::vector<GranuleId> granules = ids(0, count);
    pool.map(pool.a(), 0, granules);
    pool.write_all();
    size_t moves = 0;
    for (int round = 0; round < 4; ++round) {
        // All of them, in another order, to the other range; read there, written there, and back.
        const RangeId from = round % 2 == 0 ? pool.a() : pool.b();
        const RangeId to = round % 2 == 0 ? pool.b() : pool.a();
        pool.unmap(from, 0, count);
        std::shuffle(granules.begin(), granules.end(), random);
        pool.map(to, 0, granules);
        pool.compare_all();
        for (size_t place = 0; place < count; place += 3) pool.write(to, place);
        pool.compare_all();
        moves += count;
    }
    return counted(moves, "move") + " between two ranges";
}

std::string partial_remap(Subject& subject, const Limits& limits) {
    Pool pool(subject, limits.granules);
    // 3/4 in range a, the rest spare; a hole in the middle half of the mapped ones.
    const size_t mapped = limits.granules * 3 / 4, hole = mapped / 4, width = mapped / 2;
    pool.map(pool.a(), 0, ids(0, mapped));
    pool.write_all();
    pool.unmap(pool.a(), hole, width);
    pool.compare_all();  // both sides of the hole are as they were
    std::vector<GranuleId> fill = ids(static_cast<GranuleId>(mapped), limits.granules - mapped);
    for (size_t i = hole; fill.size() < width; ++i) fill.push_back(static_cast<GranuleId>(i));
    pool.map(pool.a(), hole, std::span(fill).first(1));
    pool.map(pool.a(), hole + 1, std::span(fill).subspan(1));
    pool.write_all();
    pool.compare_all();
    // What makes no sense is answered so and changes nothing.
    const auto refused = [&](const Result<void>& result) {
        return !result && result.error().kind == ErrorKind::internal;
    };
    DeviceMemory& memory = pool.memory();
    expect(refused(memory.map(pool.a(), hole, ids(0, 1))) &&
               refused(memory.map(pool.b(), 0, std::span(fill).first(1))) &&
               refused(memory.map(pool.b(), limits.granules, std::span(fill).first(1))) &&
               refused(memory.unmap(pool.b(), 0, 1)) &&
               refused(memory.release_granules(std::span(fill).first(1))),
           "a wrong call was not refused");
    pool.compare_all();
    return "a hole of " + counted(width, "place") + " filled with other granules";
}

std::string graph(Subject& subject, const Limits& limits) {
    Pool pool(subject, limits.granules);
    pool.map(pool.a(), 0, ids(0, 2));
    const size_t bytes = 2 * pool.granule_bytes();
    auto captured = pool.card().capture_write(pool.at(pool.a(), 0), bytes, 4242);
    if (!captured && captured.error().kind == ErrorKind::unsupported)
        throw NotApplicable{captured.error().message()};
    const std::unique_ptr<Replay> replay = need(std::move(captured));
    const auto wrong_in = [&](RangeId range) {
        return need(pool.card().wrong_words(pool.at(range, 0), bytes, 4242));
    };
    need(replay->run());
    expect_equal(wrong_in(pool.a()), 0, "wrong words after the first replay");
    const size_t replays = std::min<size_t>(limits.granules / 2 - 1, 16);
    for (size_t i = 1; i <= replays; ++i) {
        // Other granules behind the same places: the graph writes those, and not the old ones.
        const std::vector<GranuleId> old = ids(static_cast<GranuleId>(2 * i - 2), 2);
        pool.unmap(pool.a(), 0, 2);
        pool.map(pool.a(), 0, ids(static_cast<GranuleId>(2 * i), 2));
        pool.map(pool.b(), 0, old);
        need(pool.card().write(pool.at(pool.a(), 0), bytes, 1));
        need(pool.card().write(pool.at(pool.b(), 0), bytes, 2));
        need(replay->run());
        expect_equal(wrong_in(pool.a()), 0, "wrong words of a new granule after a replay");
        expect_equal(need(pool.card().wrong_words(pool.at(pool.b(), 0), bytes, 2)), 0,
                     "words that a replay changed in the old granule");
        pool.unmap(pool.b(), 0, 2);
    }
    return "captured once, replayed after " + counted(replays, "remap");
}

std::string streams(Subject& subject, const Limits& limits) {
    Pool pool(subject, limits.granules);
    const size_t bytes = 4 * pool.granule_bytes();
    pool.map(pool.a(), 0, ids(0, 4));
    pool.map(pool.b(), 0, ids(4, 4));
    DeviceMemory& memory = pool.memory();
    const HostBuffer up = need(memory.page_locked(bytes)), down = need(memory.page_locked(bytes));
    for (int round = 0; round < 8; ++round) {
        // Up on the copy stream, across on the compute stream once that is there, down on the copy
        // stream once that is there; nobody waits but the streams.
        std::mt19937_64 random(static_cast<uint64_t>(round));
        for (size_t i = 0; i < bytes; i += 8) {
            const uint64_t word = random();
            std::memcpy(up.data.get() + i, &word, 8);
        }
        std::memset(down.data.get(), 0, bytes);
        memory.fill(StreamId::copy, pool.at(pool.a(), 0), round, bytes);
        memory.copy(StreamId::copy, pool.at(pool.a(), 0), up.data.get(), bytes);
        memory.wait(StreamId::compute, memory.record(StreamId::copy));
        memory.fill(StreamId::compute, pool.at(pool.b(), 0), 0xee, bytes);
        memory.copy(StreamId::compute, pool.at(pool.b(), 0), pool.at(pool.a(), 0), bytes);
        memory.wait(StreamId::copy, memory.record(StreamId::compute));
        memory.copy(StreamId::copy, down.data.get(), pool.at(pool.b(), 0), bytes);
        need(memory.synchronize(StreamId::copy));
        expect(std::memcmp(up.data.get(), down.data.get(), bytes) == 0,
               "bytes changed on their way up, across and down");
    }
    return "8 times " + format_bytes(bytes) + " up, across and down";
}

std::string two_pools(Subject& subject, const Limits& limits) {
    Pool first(subject, limits.granules);
    first.map(first.a(), 0, ids(0, limits.granules));
    first.write_all();
    {
        Pool second(subject, limits.granules);
        const uint64_t asked = first.memory().driver_allocations();
        second.map(second.a(), 0, ids(0, limits.granules));
        for (int round = 0; round < 3; ++round) {
            second.write_all();
            first.write_all();
            second.compare_all();
            first.compare_all();
        }
        second.unmap(second.a(), 0, limits.granules / 2);
        first.compare_all();
        expect_equal(first.memory().driver_allocations(), asked, "calls to the driver");
    }
    first.compare_all();  // the other is gone
    return "2 pools of " + counted(limits.granules, "granule") + ", one closed before the other";
}

std::string no_growth(Subject& subject, const Limits& limits) {
    Pool pool(subject, limits.granules);
    DeviceMemory& memory = pool.memory();
    const size_t bytes = 2 * pool.granule_bytes();
    const HostBuffer buffer = need(memory.page_locked(bytes));
    std::memset(buffer.data.get(), 5, bytes);
    std::unique_ptr<Replay> replay;
    const auto work = [&] {
        pool.map(pool.a(), 0, ids(0, limits.granules));
        pool.write_all();
        memory.copy(StreamId::copy, pool.at(pool.a(), 0), buffer.data.get(), bytes);
        memory.wait(StreamId::compute, memory.record(StreamId::copy));
        memory.copy(StreamId::compute, pool.at(pool.a(), 2), pool.at(pool.a(), 0), bytes);
        memory.fill(StreamId::compute, pool.at(pool.a(), 4), 0, bytes);
        if (replay) need(replay->run());
        need(memory.synchronize(StreamId::copy));
        for (size_t place = 6; place < limits.granules; ++place) pool.compare(pool.a(), place);
        pool.unmap(pool.a(), 0, limits.granules);
    };
    pool.map(pool.a(), 0, ids(0, 2));
    if (auto captured = pool.card().capture_write(pool.at(pool.a(), 0), bytes, 1)) {
        replay = std::move(*captured);
        need(replay->run());
    }
    pool.unmap(pool.a(), 0, 2);
    work();  // each kind of call once: the load
    const uint64_t asked = memory.driver_allocations(), before = need(pool.card().free_bytes());
    constexpr int kRounds = 20;
    for (int round = 0; round < kRounds; ++round) {
        work();
        expect_equal(need(pool.card().free_bytes()), before,
                     "free bytes after round " + std::to_string(round) +
                         " (or another program changed them)");
    }
    expect_equal(memory.driver_allocations(), asked, "calls to the driver");
    return counted(kRounds, "round") + " of mapping, kernels, copies and replays, 0 bytes";
}

std::string give_back(Subject& subject, const Limits& limits) {
    Pool pool(subject, limits.granules);
    DeviceMemory& memory = pool.memory();
    const size_t kept = limits.granules / 2, given = limits.granules - kept;
    const uint64_t granule = pool.granule_bytes(), all = limits.granules * granule;
    const std::vector<GranuleId> back = ids(static_cast<GranuleId>(kept), given);
    pool.map(pool.a(), 0, ids(0, limits.granules));
    pool.write_all();
    pool.unmap(pool.a(), kept, given);
    const uint64_t full = need(pool.card().free_bytes()), asked = memory.driver_allocations();
    for (int round = 1; round <= 3; ++round) {
        need(memory.release_granules(back));
        expect_equal(need(pool.card().free_bytes()), full + given * granule,
                     "free bytes after giving back");
        expect_equal(memory.driver_bytes(), all - given * granule, "bytes held");
        expect(!memory.held(back.front()) && memory.held(back.front() - 1),
               "held() does not tell what was given back");
        expect(!memory.map(pool.a(), kept, back), "a granule was mapped that was given back");
        pool.compare_all();
        need(memory.recreate_granules(back));
        expect_equal(need(pool.card().free_bytes()), full, "free bytes after taking again");
        expect_equal(memory.driver_bytes(), all, "bytes held");
        expect_equal(memory.driver_allocations(), asked + static_cast<uint64_t>(round),
                     "calls to the driver");
        pool.map(pool.a(), kept, back);
        for (size_t place = kept; place < limits.granules; ++place) pool.write(pool.a(), place);
        pool.compare_all();
        pool.unmap(pool.a(), kept, given);
    }
    return "3 times " + format_bytes(given * granule) + " to the driver and back, to the byte";
}

}  // namespace

std::vector<Check> memory_checks() {
    return {
        {"pool", "a pool takes exactly its granules from the driver", pool},
        {"map", "what a kernel writes to a place it reads there", map},
        {"remap", "content follows a granule from range to range", remap},
        {"partial remap", "part of a range changes its granules, the rest stays", partial_remap},
        {"graph", "a captured graph sees the granule that is mapped now", graph},
        {"streams", "copies and kernels wait for one another through events", streams},
        {"two pools", "two pools on one device do not touch each other", two_pools},
        {"no growth", "after load the driver gives nothing more", no_growth},
        {"give back", "granules go back to the driver and come again", give_back},
    };
}

}  // namespace granary::gpu::check

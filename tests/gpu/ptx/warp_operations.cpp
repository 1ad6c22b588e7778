// SPDX-License-Identifier: GPL-3.0-or-later
// What lanes of a warp, and warps of a block, do together.
#include <algorithm>
#include <bit>

#include "tests/gpu/ptx/grid.h"
#include "tests/gpu/ptx/operation.h"
#include "tests/gpu/ptx/warp.h"

namespace granary::test::ptx {
namespace {

// ---- values from other lanes: 0 the result, 4 whether the lane was there, 1 the value, 2 which
// lane, 3 the bound and the segment.

enum class Shuffle : uint8_t { up, down, butterfly, index };

template <Shuffle kHow>
void shuffle(Warp& w, const Instruction& i) {
    std::array<uint32_t, kLanes> given;
    std::memcpy(given.data(), w.registers + i.at[1], sizeof given);
    uint32_t there = 0;
    each_lane(w, [&](uint32_t lane) {
        const auto by = static_cast<uint32_t>(bits(w, i, 2, lane)) & 31;
        const auto c = static_cast<uint32_t>(bits(w, i, 3, lane));
        const uint32_t segment = c >> 8 & 31, bound = c & 31;
        const uint32_t last = (lane & segment) | (bound & ~segment), first = lane & segment;
        uint32_t from = 0;
        bool valid = false;
        switch (kHow) {
            case Shuffle::up:
                from = lane - by;
                valid = static_cast<int32_t>(from) >= static_cast<int32_t>(last);
                break;
            case Shuffle::down:
                from = lane + by;
                valid = from <= last;
                break;
            case Shuffle::butterfly:
                from = lane ^ by;
                valid = from <= last;
                break;
            case Shuffle::index:
                from = first | (by & ~segment);
                valid = from <= last;
                break;
        }
        if (!valid) from = lane;
        if (!(w.mask >> from & 1)) fault(*w.block, i, "the value of a lane that is not there");
        there |= static_cast<uint32_t>(valid) << lane;
        set_bits(w, i, 0, lane, given[from]);
    });
    if (i.at[4] == kNoGuard) return;
    uint32_t& p = predicate(w, i.at[4]);
    p = (p & ~w.mask) | there;
}

void shuffles(const Operation& o, FunctionRoom& room, Instruction& to) {
    const Operand& target = o.operand(0);
    room.put(to, 0, target, Type::b32);
    to.at[4] = target.parts.empty() ? kNoGuard : target.parts[0].at;
    for (uint32_t i = 1; i < 4; ++i) room.put(to, i, o.operand(i), Type::b32);
    room.put(to, 5, o.operand(4), Type::b32);
    to.members = to.at[5];
    to.control = Control::together;
    to.run = o.has("up")     ? shuffle<Shuffle::up>
             : o.has("down") ? shuffle<Shuffle::down>
             : o.has("bfly") ? shuffle<Shuffle::butterfly>
                             : shuffle<Shuffle::index>;
}

// ---- votes

enum Vote : uint64_t { kAny, kEvery, kBallot };
constexpr uint64_t kOfNot = 4;

void vote(Warp& w, const Instruction& i) {
    const uint32_t p = (i.value & kOfNot ? ~predicate(w, i.at[1]) : predicate(w, i.at[1])) & w.mask;
    if ((i.value & 3) == kBallot) {
        each_lane(w, [&](uint32_t lane) { set_bits(w, i, 0, lane, p); });
        return;
    }
    const bool holds = (i.value & 3) == kAny ? p != 0 : p == w.mask;
    uint32_t& d = predicate(w, i.at[0]);
    d = holds ? d | w.mask : d & ~w.mask;
}

void votes(const Operation& o, FunctionRoom& room, Instruction& to) {
    to.at[0] = o.operand(0).at;
    to.at[1] = o.operand(1).at;
    to.value = o.has("ballot") ? kBallot : o.has("any") ? kAny : kEvery;
    if (o.has("uni")) o.unknown("not known");
    if (o.operand(1).negated) to.value |= kOfNot;
    room.put(to, 2, o.operand(2), Type::b32);
    to.members = to.at[2];
    to.control = Control::together;
    to.run = vote;
}

template <class F>
void reduce(Warp& w, const Instruction& i, uint32_t start, F&& of) {
    uint32_t all = start;
    each_lane(w, [&](uint32_t lane) { all = of(all, static_cast<uint32_t>(bits(w, i, 1, lane))); });
    each_lane(w, [&](uint32_t lane) { set_bits(w, i, 0, lane, all); });
}
void reduce_most(Warp& w, const Instruction& i) {
    reduce(w, i, 0, [](uint32_t a, uint32_t b) { return std::max(a, b); });
}
void reduce_least(Warp& w, const Instruction& i) {
    reduce(w, i, kAll, [](uint32_t a, uint32_t b) { return std::min(a, b); });
}
void reduce_sum(Warp& w, const Instruction& i) {
    reduce(w, i, 0, [](uint32_t a, uint32_t b) { return a + b; });
}

void reductions(const Operation& o, FunctionRoom& room, Instruction& to) {
    for (uint32_t i = 0; i < 3; ++i) room.put(to, i, o.operand(i), Type::u32);
    to.members = to.at[2];
    to.control = Control::together;
    to.run = o.has("add")            ? reduce_sum
             : o.type() != Type::u32 ? nullptr
             : o.has("max")          ? reduce_most
             : o.has("min")          ? reduce_least
                                     : nullptr;
    if (!to.run) o.unknown("not known");
}

void active_mask(Warp& w, const Instruction& i) {
    each_lane(w, [&](uint32_t lane) { set_bits(w, i, 0, lane, w.mask); });
}
void active_masks(const Operation& o, FunctionRoom& room, Instruction& to) {
    room.put(to, 0, o.operand(0), Type::b32);
    to.run = active_mask;
}

// ---- barriers of a block: register 1 the barrier, 2 how many threads, 0 the result, 3 a predicate

enum BarrierUse : uint64_t { kWait, kArrive, kCount };

void come(Warp& w, const Instruction& i) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(w.mask));
    const auto number = static_cast<uint32_t>(bits(w, i, 1, lane));
    if (number >= w.block->barriers.size()) fault(*w.block, i, "no such barrier");
    Barrier& barrier = w.block->barriers[number];
    if (i.at[2] != kNoGuard) {
        barrier.ordered = true;
        barrier.wanted = static_cast<uint32_t>(bits(w, i, 2, lane));
    }
    barrier.come += kLanes;
    w.block->races.arrive(w.number, barrier.seen);
    barrier.waited |= w.waited != 0;
    if (i.value == kArrive) return meet(*w.block, barrier);
    if (i.value == kCount)
        barrier.count += static_cast<uint32_t>(std::popcount(predicate(w, i.at[3]) & w.mask));
    w.at_barrier = true;
    barrier.waiting.emplace_back(&w, i.value == kCount ? i.at[0] : kNoGuard);
    meet(*w.block, barrier);
}

void same_place(Warp& w, const Instruction&) {
    w.block->races.step(w.number);
    if (w.waited & w.mask) w.waited |= w.mask;
}

void barriers(const Operation& o, FunctionRoom& room, Instruction& to) {
    if (o.has("warp")) {
        room.put(to, 0, o.operand(0), Type::b32);
        to.members = to.at[0];
        to.control = Control::together;
        to.run = same_place;
        return;
    }
    to.control = Control::barrier;
    to.run = come;
    to.at[2] = kNoGuard;
    if (o.has("red")) {
        if (!o.has("popc")) o.unknown("not known");
        to.value = kCount;
        room.put(to, 0, o.operand(0), Type::u32);
        room.put(to, 1, o.operand(1), Type::u32);
        if (o.operands.size() > 3) room.put(to, 2, o.operand(2), Type::u32);
        to.at[3] = o.operands.back().at;
        return;
    }
    to.value = o.has("arrive") ? kArrive : kWait;
    room.put(to, 1, o.operand(0), Type::u32);
    if (o.operands.size() > 1) room.put(to, 2, o.operand(1), Type::u32);
}

void trap(Warp& w, const Instruction& i) {
    fault(*w.block, i, "the kernel gave up");
}
void traps(const Operation&, FunctionRoom&, Instruction& to) {
    to.run = trap;
}

}  // namespace

Builder warp_builder(std::string_view name) {
    static const std::map<std::string_view, Builder> builders{
        {"shfl", shuffles}, {"vote", votes},       {"redux", reductions},
        {"bar", barriers},  {"barrier", barriers}, {"activemask", active_masks},
        {"trap", traps}};
    return find_builder(builders, name);
}

}  // namespace granary::test::ptx

// SPDX-License-Identifier: GPL-3.0-or-later
// Barriers in shared memory that count arrivals and bytes, and the copy engine that tells them of
// its bytes. Like other copies these are made late: when somebody waits for their barrier.
#include <algorithm>

#include "tests/gpu/ptx/operation.h"
#include "tests/gpu/ptx/tensor_map.h"
#include "tests/gpu/ptx/warp.h"

namespace granary::test::ptx {
namespace {

constexpr uint32_t kBarrierBytes = 8;

CountingBarrier& barrier_at(Block& block, uint64_t offset, const Instruction& i) {
    (void)shared_at(block, offset, kBarrierBytes, i);
    const auto found = block.counting.find(static_cast<uint32_t>(offset));
    if (found == block.counting.end()) fault(block, i, "no barrier has been made there");
    return found->second;
}

void end_phase_where_complete(CountingBarrier& barrier) {
    if (barrier.pending > 0 || barrier.bytes != 0) return;
    ++barrier.phase;
    barrier.pending = barrier.count;
}

// Registers: 0 the barrier, 1 a number.

void make(Warp& w, const Instruction& i) {
    each_lane(w, [&](uint32_t lane) {
        const uint64_t at = bits(w, i, 0, lane);
        (void)shared_at(*w.block, at, kBarrierBytes, i);
        if (at % kBarrierBytes != 0) fault(*w.block, i, "an address that is not aligned");
        const auto count = static_cast<uint32_t>(bits(w, i, 1, lane));
        CountingBarrier made;
        made.count = made.pending = count;
        w.block->counting[static_cast<uint32_t>(at)] = made;
    });
}

void arrive_once(Warp& w, uint64_t at, const Instruction& i) {
    Block& block = *w.block;
    CountingBarrier& barrier = barrier_at(block, at, i);
    block.races.arrive(w.number, barrier.seen);
    barrier.waited |= w.waited != 0;
    if (barrier.pending == 0) fault(block, i, "more arrivals than the phase counts");
    --barrier.pending;
    end_phase_where_complete(barrier);
}

void arrive(Warp& w, const Instruction& i) {
    each_lane(w, [&](uint32_t lane) { arrive_once(w, bits(w, i, 0, lane), i); });
}
void arrive_expecting(Warp& w, const Instruction& i) {
    each_lane(w, [&](uint32_t lane) {
        const uint64_t at = bits(w, i, 0, lane);
        barrier_at(*w.block, at, i).bytes += static_cast<int64_t>(bits(w, i, 1, lane));
        arrive_once(w, at, i);
    });
}
void arrive_copied(Warp& w, const Instruction& i) {
    each_lane(w, [&](uint32_t lane) { ++w.committed[lane]; });
    finish_copies(w, 0, i);
    arrive(w, i);
}

// Predicate register 0: whether the phase of that parity, 2, has ended. Register 1 is the barrier.
void has_ended(Warp& w, const Instruction& i) {
    uint32_t ended = 0;
    each_lane(w, [&](uint32_t lane) {
        const uint64_t at = bits(w, i, 1, lane);
        CountingBarrier& barrier = barrier_at(*w.block, at, i);
        const auto late = std::move(barrier.late);
        barrier.late.clear();
        for (const CountingBarrier::Copy& copy : late) {
            copy.make();
            barrier.bytes -= copy.bytes;
            see(copy.seen, barrier.seen);
        }
        if (!late.empty()) end_phase_where_complete(barrier);
        const bool over = (barrier.phase & 1) != (bits(w, i, 2, lane) & 1);
        ended |= static_cast<uint32_t>(over) << lane;
        if (over) w.block->races.leave(w.number, barrier.seen);
        if (over && barrier.waited) w.waited |= 1u << lane;
    });
    if (ended) w.block->races.step(w.number);
    uint32_t& p = predicate(w, i.at[0]);
    p = (p & ~w.mask) | ended;
    w.gives_way = ended != w.mask;  // others first
}

void barriers(const Operation& o, FunctionRoom& room, Instruction& to) {
    if (!o.has("shared") || !o.has("b64")) o.unknown("not in this form");
    if (o.has("try_wait") && o.has("parity")) {
        to.run = has_ended;
        to.at[0] = o.operand(0).at;
        room.put_place(to, 1, o.operand(1), Type::u32);
        room.put_place(to, 2, o.operand(2), Type::u32);
        return;
    }
    const size_t first = o.has("arrive") ? 1 : 0;  // behind the state, which nobody wants
    room.put_place(to, 0, o.operand(first), Type::u32);
    if (o.has("init")) {
        to.run = make;
    } else if (o.has("arrive")) {
        if (o.operand(0).kind != Operand::Kind::sink) o.unknown("not in this form");
        to.run = o.has("expect_tx") ? arrive_expecting : arrive;
    } else {
        o.unknown("not known");
    }
    if (o.operands.size() > first + 1)
        room.put_place(to, 1, o.operand(first + 1), Type::u32);
    else if (o.has("init") || o.has("expect_tx"))
        o.unknown("it has too few operands");
}

// Registers: 0 where to, 1 where from, 2 how much, 3 the barrier.
void copy_bytes(Warp& w, const Instruction& i) {
    each_lane(w, [&](uint32_t lane) {
        const auto bytes = static_cast<uint32_t>(bits(w, i, 2, lane));
        const uint64_t to = bits(w, i, 0, lane), from = bits(w, i, 1, lane);
        if (bytes % 16 != 0 || to % 16 != 0 || from % 16 != 0)
            fault(*w.block, i, "an address or a size that is not aligned");
        std::byte* const target = shared_at(*w.block, to, bytes, i);
        note_write(w, lane, to, bytes, i);
        const std::byte* const source = memory_at(w, from, bytes, i);
        barrier_at(*w.block, bits(w, i, 3, lane), i)
            .late.push_back({[=] { std::memcpy(target, source, bytes); }, bytes,
                             w.block->races.seen(w.number)});
    });
}

// Registers: 0 where to, 1 the map, 2 the barrier, from 3 on the box's first element. What lies
// beyond the array is 0.
void copy_box(Warp& w, const Instruction& i) {
    each_lane(w, [&](uint32_t lane) {
        TensorMap map;
        std::memcpy(&map, memory_at(w, bits(w, i, 1, lane), sizeof map, i), sizeof map);
        if (map.dimensions != i.parts) fault(*w.block, i, "another number of dimensions");
        const uint32_t row = map.box[0] * map.element_bytes;
        uint32_t rows = 1;
        for (uint32_t d = 1; d < map.dimensions; ++d) rows *= map.box[d];
        const uint64_t to = bits(w, i, 0, lane);
        if (row != 128 || to % 1024 != 0) fault(*w.block, i, "rows that are not swizzled so");
        (void)shared_at(*w.block, to, rows * row, i);
        note_write(w, lane, to, rows * row, i);
        int64_t first[kMostDimensions];
        for (uint32_t d = 0; d < map.dimensions; ++d)
            first[d] = static_cast<int32_t>(bits(w, i, 3 + d, lane));
        std::byte* const base = w.block->shared;
        std::vector<std::byte> box(size_t{rows} * row);
        for (uint32_t r = 0; r < rows; ++r) {
            bool inside = true;
            uint64_t from = map.address;
            uint32_t left = r;
            for (uint32_t d = 1; d < map.dimensions; ++d) {
                const int64_t at = first[d] + left % map.box[d];
                left /= map.box[d];
                inside &= at >= 0 && static_cast<uint64_t>(at) < map.sizes[d];
                from += static_cast<uint64_t>(at) * map.strides[d - 1];
            }
            for (uint32_t e = 0; inside && e < map.box[0]; ++e) {
                const int64_t at = first[0] + e;
                if (at < 0 || static_cast<uint64_t>(at) >= map.sizes[0]) continue;
                const uint64_t element = from + static_cast<uint64_t>(at) * map.element_bytes;
                std::memcpy(&box[r * row + e * map.element_bytes],
                            memory_at(w, element, map.element_bytes, i), map.element_bytes);
            }
        }
        const auto target = static_cast<uint32_t>(to);
        barrier_at(*w.block, bits(w, i, 2, lane), i)
            .late.push_back({[=] {
                                 for (uint32_t at = 0; at < box.size(); at += 16)
                                     std::memcpy(base + swizzled(target + at), &box[at], 16);
                             },
                             static_cast<int64_t>(box.size()), w.block->races.seen(w.number)});
    });
}

}  // namespace

void bulk_copies(const Operation& o, FunctionRoom& room, Instruction& to) {
    if (o.has("mbarrier") && o.has("arrive") && o.has("noinc")) {
        to.run = arrive_copied;
        room.put_place(to, 0, o.operand(0), Type::u32);
    } else if (o.has("bulk") && o.has("tensor") && o.has("tile")) {
        const Operand& map = o.operand(1);
        const auto& place = map.parts.at(0).parts;
        to.run = copy_box;
        to.parts = static_cast<uint8_t>(place.size());
        room.put_place(to, 0, o.operand(0), Type::u32);
        Operand address = map;
        address.parts.clear();
        room.put_place(to, 1, address, Type::u64);
        room.put_place(to, 2, o.operand(2), Type::u32);
        for (uint32_t d = 0; d < place.size(); ++d) room.put(to, 3 + d, place[d], Type::u32);
    } else if (o.has("bulk") && o.has("global") && o.has("mbarrier::complete_tx::bytes")) {
        to.run = copy_bytes;
        room.put_place(to, 0, o.operand(0), Type::u32);
        room.put_place(to, 1, o.operand(1), Type::u64);
        room.put_place(to, 2, o.operand(2), Type::u32);
        room.put_place(to, 3, o.operand(3), Type::u32);
    } else {
        o.unknown("not known");
    }
}

Builder barrier_builder(std::string_view name) {
    return name == "mbarrier" ? barriers : nullptr;
}

}  // namespace granary::test::ptx

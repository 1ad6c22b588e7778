// SPDX-License-Identifier: GPL-3.0-or-later
// Copies to shared memory that run beside the kernel. Here they are made as late as they may be:
// when the kernel waits for them; so one that does not wait reads what was there before.
#include "tests/gpu/ptx/operation.h"
#include "tests/gpu/ptx/warp.h"

namespace granary::test::ptx {

void finish_copies(Warp& warp, uint32_t pending, const Instruction& i) {
    while (!warp.copies.empty()) {
        const LateCopy& copy = warp.copies.front();
        if (warp.committed[copy.lane] < copy.group + 1 + pending) break;
        note_write(warp, copy.lane, copy.at, copy.bytes + copy.zeros, i);
        std::byte* const to = warp.block->shared + copy.at;
        std::memcpy(to, copy.from, copy.bytes);
        std::memset(to + copy.bytes, 0, copy.zeros);
        warp.copies.pop_front();
    }
}

namespace {

// Registers: 0 the place in shared memory, 1 that in global memory, 2 the bytes that are taken from
// there where that is not all. value: bytes.
void copy(Warp& w, const Instruction& i) {
    const auto bytes = static_cast<uint32_t>(i.value);
    each_lane(w, [&](uint32_t lane) {
        const uint64_t to = bits(w, i, 0, lane), from = bits(w, i, 1, lane);
        if (to % bytes != 0 || from % bytes != 0)
            fault(*w.block, i, "an address that is not aligned");
        const uint32_t taken = i.at[2] == kNoGuard
                                   ? bytes
                                   : std::min(bytes, static_cast<uint32_t>(bits(w, i, 2, lane)));
        LateCopy late;
        late.at = static_cast<uint32_t>(to);
        note_write(w, lane, to, bytes, i);  // it may be made from now on
        const std::byte* const target = shared_at(*w.block, to, bytes, i);
        late.from = taken > 0 ? memory_at(w, from, taken, i) : target;
        if (taken > 0) note_global_read(w, lane, from, taken, i);
        late.bytes = taken;
        late.zeros = bytes - taken;
        late.lane = lane;
        late.group = w.committed[lane];
        w.copies.push_back(late);
    });
}

void commit(Warp& w, const Instruction&) {
    each_lane(w, [&](uint32_t lane) { ++w.committed[lane]; });
}

void wait(Warp& w, const Instruction& i) {
    finish_copies(w, static_cast<uint32_t>(i.value), i);
}

void copies(const Operation& o, FunctionRoom& room, Instruction& to) {
    if (o.parts.at(1) != "async") o.unknown("not known");
    if (o.has("commit_group")) {
        to.run = commit;
    } else if (o.has("wait_group")) {
        to.run = wait;
        to.value = o.operand(0).number;
    } else if (o.has("shared") && o.has("global") && !o.has("bulk")) {
        for (uint32_t a = 0; a < 2; ++a) room.put_place(to, a, o.operand(a), Type::b64);
        to.value = o.operand(2).number;
        to.at[2] = kNoGuard;
        const bool policy = o.has("L2::cache_hint");
        if (o.operands.size() > (policy ? 4u : 3u)) room.put(to, 2, o.operand(3), Type::u32);
        to.run = copy;
    } else {
        bulk_copies(o, room, to);
    }
}

}  // namespace

Builder copy_builder(std::string_view name) {
    return name == "cp" ? copies : nullptr;
}

}  // namespace granary::test::ptx

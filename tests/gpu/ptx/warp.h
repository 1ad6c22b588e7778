// SPDX-License-Identifier: GPL-3.0-or-later
// 32 lanes that run one kernel, and the block that they belong to.
#pragma once

#include <cstring>
#include <deque>
#include <functional>

#include "tests/gpu/ptx/early.h"
#include "tests/gpu/ptx/program.h"
#include "tests/gpu/ptx/races.h"

namespace granary::test::ptx {

struct Span {
    uintptr_t begin = 0, end = 0;
};

// What kernels may read and write of memory that others have made: the span around an address.
// `end` is 0 where there is none.
using FindMemory = std::function<Span(uintptr_t)>;

struct Block;

// Lanes of a warp that are at the same instruction.
struct Group {
    uint32_t pc = 0, mask = 0;
    bool waits = false;  // until other lanes come
};

// A copy to shared memory that was begun and is not waited for yet.
struct LateCopy {
    uint32_t at;  // in shared memory
    const std::byte* from;
    uint32_t bytes, zeros;  // zeros behind the bytes
    uint32_t lane, group;
};

struct Warp {
    Block* block = nullptr;
    uint32_t number = 0;
    std::byte* registers = nullptr;
    std::byte* frames = nullptr;  // local memory, lane by lane
    uint32_t mask = 0;            // of the lanes that the instruction at hand is for
    uint32_t alive = kAll;
    uint32_t waited = 0;        // lanes that know that the kernels ahead have ended
    std::vector<Group> groups;  // all lanes that are alive; the one at hand is `now`
    size_t now = 0;
    bool at_barrier = false;
    // It has asked in vain for what others do, and this turn did so and nothing else.
    bool gives_way = false, only_asks = false;
    bool ended = false;
    std::deque<LateCopy> copies;
    std::array<uint32_t, kLanes> committed{};  // groups of copies, by lane

    Group& group() { return groups[now]; }
};

// A barrier in shared memory that counts arrivals and bytes.
struct CountingBarrier {
    uint32_t count = 0, pending = 0, phase = 0;
    int64_t bytes = 0;  // that are expected yet
    // A copy that tells it of its bytes.
    struct Copy {
        std::function<void()> make;
        int64_t bytes;
        Seen seen;  // by the warp that began it
    };
    std::vector<Copy> late;
    Seen seen;            // by those who came
    bool waited = false;  // some of them, for the kernels ahead
};

// A barrier of a block, by number.
struct Barrier {
    uint32_t come = 0, wanted = 0;                    // threads; 0: all that there are
    uint32_t count = 0;                               // of predicates that hold
    bool ordered = false;                             // `wanted` is told
    std::vector<std::pair<Warp*, uint32_t>> waiting;  // and where the count goes
    Seen seen;                                        // by those who came
    bool waited = false;  // some of those who came, for the kernels ahead
};

struct Block {
    const Function* function = nullptr;
    std::array<uint32_t, 3> block{1, 1, 1}, grid{1, 1, 1}, number{};
    std::byte* shared = nullptr;
    uint32_t shared_of_launch = 0;
    std::byte* parameters = nullptr;
    const FindMemory* memory = nullptr;
    Span known;  // where the last access was
    std::vector<Warp> warps;
    std::array<Barrier, 16> barriers;
    std::map<uint32_t, CountingBarrier> counting;  // by place in shared memory
    Races races;
    EarlyLaunches* early = nullptr;
    bool waited = false;          // some lane, for the kernels ahead
    bool let_next_first = false;  // let the next one begin before that
};

// ---- registers

// A lane's value of a register: values under 4 bytes lie in 4.
template <class T>
struct Lane {
    alignas(sizeof(T) < 4 ? 4 : sizeof(T)) T value;
};

template <class T>
Lane<T>* lanes(const Warp& warp, uint32_t at) {
    return reinterpret_cast<Lane<T>*>(warp.registers + at);
}
inline uint32_t& predicate(const Warp& warp, uint32_t at) {
    return *reinterpret_cast<uint32_t*>(warp.registers + at);
}
// Of any size, as its lowest 64 bits.
inline uint64_t bits(const Warp& warp, const Instruction& i, uint32_t which, uint32_t lane) {
    const std::byte* const base = warp.registers + i.at[which];
    uint64_t value = 0;
    if (i.is_wide(which))
        std::memcpy(&value, base + 8 * lane, 8);
    else
        std::memcpy(&value, base + 4 * lane, 4);
    return value;
}
inline void set_bits(const Warp& warp, const Instruction& i, uint32_t which, uint32_t lane,
                     uint64_t value) {
    std::byte* const base = warp.registers + i.at[which];
    if (i.is_wide(which))
        std::memcpy(base + 8 * lane, &value, 8);
    else
        std::memcpy(base + 4 * lane, &value, 4);
}

// Calls f for each lane that the instruction is for; all at once where it can be a loop.
template <class F>
inline __attribute__((always_inline)) void each_lane(const Warp& warp, F&& f) {
    if (warp.mask == kAll) {
        for (uint32_t lane = 0; lane < kLanes; ++lane) f(lane);
    } else {
        for (uint32_t left = warp.mask; left != 0; left &= left - 1)
            f(static_cast<uint32_t>(__builtin_ctz(left)));
    }
}

// ---- memory (memory.cpp)

// `bytes` of shared memory at an offset. Errors: Fault, beyond what the block has.
std::byte* shared_at(const Block& block, uint64_t offset, uint32_t bytes, const Instruction& i);
// `bytes` at an address of no particular kind of memory. Errors: Fault, where nothing is that a
// kernel may use.
std::byte* memory_at(Warp& warp, uint64_t address, uint32_t bytes, const Instruction& i);

// Tells of an access to the block's own shared memory. Errors: Fault, where nothing puts it in
// order with another. kNoLane: all lanes together.
inline constexpr uint32_t kNoLane = kLanes;
void note_read(Warp& warp, uint32_t lane, uint64_t at, uint32_t bytes, const Instruction& i);
void note_write(Warp& warp, uint32_t lane, uint64_t at, uint32_t bytes, const Instruction& i);

// Tells of an access to global memory. Errors: Fault, where the kernel should have waited for those
// ahead of it.
void note_global_read(Warp& warp, uint32_t lane, uint64_t at, uint32_t bytes, const Instruction& i);
void note_global_write(Warp& warp, uint32_t lane, uint64_t at, uint32_t bytes,
                       const Instruction& i);

// Carries out what was begun and belongs to groups of copies older than the last `pending`.
void finish_copies(Warp& warp, uint32_t pending, const Instruction& i);

[[noreturn]] void fault(const Block& block, const Instruction& i, const std::string& what);

}  // namespace granary::test::ptx

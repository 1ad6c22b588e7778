// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/gpu/ptx/grid.h"

#include <algorithm>
#include <bit>

namespace granary::test::ptx {
namespace {

// Instructions after which another warp has its turn: some wait for what others, or the host,
// write.
constexpr uint32_t kTurn = 1 << 16;

// Instructions of a loop that does nothing but ask again, and how often all warps may have done
// nothing else.
constexpr uint32_t kAsking = 4, kIdleRounds = 3;

// What was written by nobody is seen: as a number it is none.
constexpr int kNobody = 0xff;

// Lanes that are furthest behind go first, so that those that parted meet again. Lanes that are at
// the same place become one group.
// Errors: Fault, where all wait for one another.
void pick_group(Warp& w) {
    size_t next = w.groups.size();
    for (size_t g = 0; g < w.groups.size(); ++g)
        if (!w.groups[g].waits && (next == w.groups.size() || w.groups[g].pc < w.groups[next].pc))
            next = g;
    if (next == w.groups.size()) {
        const Instruction& i = w.block->function->code[w.groups[0].pc];
        fault(*w.block, i, "lanes wait for lanes that never come");
    }
    Group merged = w.groups[next];
    std::erase_if(w.groups, [&](const Group& other) {
        if (other.pc != merged.pc) return false;
        merged.mask |= other.mask;
        return true;
    });
    w.groups.push_back(merged);
    w.now = w.groups.size() - 1;
}

// Runs until the warp waits at a barrier, has ended or has had its turn.
void run_warp(Warp& w) {
    const Instruction* const code = w.block->function->code.data();
    w.gives_way = w.only_asks = false;
    for (uint32_t left = kTurn; left > 0;) {
        pick_group(w);
        uint32_t nearest = ~uint32_t{0};  // where another group is
        for (size_t g = 0; g + 1 < w.groups.size(); ++g)
            if (w.groups[g].pc > w.group().pc) nearest = std::min(nearest, w.groups[g].pc);
        uint32_t pc = w.group().pc;
        uint32_t mask = w.group().mask;
        bool regroup = false;
        while (!regroup && pc < nearest && left > 0) {
            const Instruction& i = code[pc];
            --left;
            w.mask = mask;
            if (i.guard != kNoGuard) {
                const uint32_t holds = predicate(w, i.guard);
                w.mask &= i.unless ? ~holds : holds;
            }
            switch (i.control) {
                case Control::nothing:
                case Control::none:
                    if (w.mask) i.run(w, i);
                    ++pc;
                    if (w.gives_way) {
                        w.only_asks = kTurn - left <= kAsking;
                        left = 0;
                    }
                    break;
                case Control::branch:
                    regroup = w.groups.size() > 1;
                    if (w.mask == mask) {
                        pc = i.target;
                    } else if (w.mask == 0) {
                        ++pc;
                    } else {
                        const Group taken{i.target, w.mask, false};
                        mask &= ~w.mask;
                        w.groups.insert(w.groups.begin(), taken);
                        ++w.now;
                        ++pc;
                        regroup = true;
                    }
                    break;
                case Control::exit:
                    w.alive &= ~w.mask;
                    mask &= ~w.mask;
                    ++pc;
                    for (Group& group : w.groups) group.waits = false;
                    regroup = true;
                    break;
                case Control::together: {
                    uint32_t members = kAll;
                    if (i.members != kNoGuard && w.mask != 0)
                        members = lanes<uint32_t>(w, i.members)[std::countr_zero(w.mask)].value;
                    if (members & w.alive & ~mask) {
                        w.group().waits = regroup = true;
                    } else {
                        if (w.mask) i.run(w, i);
                        ++pc;
                    }
                    break;
                }
                case Control::barrier:
                    if (w.alive & ~mask) {
                        w.group().waits = regroup = true;
                    } else {
                        ++pc;
                        w.group().pc = pc;
                        if (w.mask) i.run(w, i);
                        if (w.at_barrier) return;
                    }
                    break;
            }
        }
        w.group().pc = pc;
        w.group().mask = mask;
        if (mask == 0) w.groups.erase(w.groups.begin() + static_cast<ptrdiff_t>(w.now));
        if (w.alive == 0) {
            w.ended = true;
            return;
        }
    }
}

uint32_t special_value(const Block& block, Special special, uint32_t thread, uint32_t lane) {
    switch (special) {
        case Special::tid_x:
            return thread % block.block[0];
        case Special::tid_y:
            return thread / block.block[0] % block.block[1];
        case Special::tid_z:
            return thread / block.block[0] / block.block[1];
        case Special::ntid_x:
            return block.block[0];
        case Special::ntid_y:
            return block.block[1];
        case Special::ntid_z:
            return block.block[2];
        case Special::ctaid_x:
            return block.number[0];
        case Special::ctaid_y:
            return block.number[1];
        case Special::ctaid_z:
            return block.number[2];
        case Special::nctaid_x:
            return block.grid[0];
        case Special::nctaid_y:
            return block.grid[1];
        case Special::nctaid_z:
            return block.grid[2];
        case Special::laneid:
            return lane;
    }
    return 0;
}

}  // namespace

// Room for one of the blocks that run at the same time; used again by the next ones.
class Runner::Place {
  public:
    void prepare(const Launch& launch, const FindMemory& memory) {
        const Function& function = *launch.function;
        const uint32_t threads = launch.block[0] * launch.block[1] * launch.block[2];
        const uint32_t warps = (threads + kLanes - 1) / kLanes;
        const bool as_before = block.function == &function && block.warps.size() == warps;
        grow(registers_, size_t{function.register_bytes} * warps);
        grow(frames_, size_t{function.frame_bytes} * kLanes * warps);
        grow(shared_, function.added_at + launch.shared_bytes);
        parameters_ = launch.parameters;
        parameters_.resize(parameters_.size() + 16);
        block.function = &function;
        block.block = launch.block;
        block.grid = launch.grid;
        block.shared = shared_.data()->bytes;
        block.shared_of_launch = launch.shared_bytes;
        block.parameters = parameters_.data();
        block.memory = &memory;
        block.known = {};  // memory may have been unmapped since
        block.warps.resize(warps);
        for (uint32_t n = 0; n < warps; ++n) {
            Warp& w = block.warps[n];
            std::byte* const registers =
                registers_.data()->bytes + size_t{n} * function.register_bytes;
            const bool constants_stand = as_before && w.registers == registers;
            w.block = &block;
            w.number = n;
            w.registers = registers;
            w.frames = frames_.data()->bytes + size_t{n} * kLanes * function.frame_bytes;
            if (!constants_stand) set_constants(w);
        }
    }

    void begin(const std::array<uint32_t, 3>& number) {
        const Function& function = *block.function;
        const uint32_t threads = block.block[0] * block.block[1] * block.block[2];
        block.number = number;
        block.barriers = {};
        block.counting.clear();
        block.waited = block.let_next_first = false;
        block.races.begin(function.added_at + block.shared_of_launch, block.warps.size());
        std::memset(block.shared, kNobody, function.shared_bytes);
        std::memset(block.shared + function.added_at, kNobody, block.shared_of_launch);
        std::memset(frames_.data(), kNobody, block.warps.size() * kLanes * function.frame_bytes);
        for (Warp& w : block.warps) {
            const uint32_t first = w.number * kLanes;
            w.alive = threads - first >= kLanes ? kAll : (1u << (threads - first)) - 1;
            w.groups = {{0, w.alive, false}};
            w.now = 0;
            w.at_barrier = w.ended = false;
            w.copies.clear();
            w.committed = {};
            w.waited = block.early->early() ? 0 : kAll;
            for (const auto& special : function.specials)
                for (uint32_t lane = 0; lane < kLanes; ++lane)
                    lanes<uint32_t>(w, special.at)[lane].value =
                        special_value(block, special.special, first + lane, lane);
        }
    }

    Block block;

  private:
    struct alignas(64) Line {
        std::byte bytes[64];
    };
    static void grow(std::vector<Line>& memory, size_t bytes) {
        memory.resize(std::max(memory.size(), bytes / sizeof(Line) + 1));
    }
    static void set_constants(Warp& w) {
        for (const auto& constant : w.block->function->constants) {
            for (uint32_t lane = 0; lane < kLanes; ++lane) {
                if (constant.wide)
                    lanes<uint64_t>(w, constant.at)[lane].value = constant.bits;
                else
                    lanes<uint32_t>(w, constant.at)[lane].value =
                        static_cast<uint32_t>(constant.bits);
            }
        }
    }

    std::vector<Line> registers_, frames_, shared_;
    std::vector<std::byte> parameters_;
};

namespace {

void check(const Launch& launch) {
    const Function& function = *launch.function;
    const uint64_t threads = uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
    if (threads == 0 || threads > function.threads)
        throw Fault(function.name + ": " + std::to_string(threads) + " threads, where it takes " +
                    std::to_string(function.threads));
    for (const uint32_t blocks : launch.grid)
        if (blocks == 0) throw Fault(function.name + ": no blocks");
}

}  // namespace

void meet(Block& block, Barrier& barrier) {
    if (barrier.come == 0) return;
    uint32_t wanted = barrier.wanted;
    if (!barrier.ordered)
        for (const Warp& w : block.warps) wanted += w.ended ? 0 : kLanes;
    if (barrier.come < wanted) return;
    const std::vector<std::pair<Warp*, uint32_t>> waiting = std::move(barrier.waiting);
    const uint32_t count = barrier.count;
    const Seen seen = std::move(barrier.seen);
    const bool waited = barrier.waited;
    barrier = {};
    for (const auto& [warp, result] : waiting) {
        warp->at_barrier = false;
        block.races.leave(warp->number, seen);
        if (waited) warp->waited = kAll;
        if (result == kNoGuard) continue;
        for (uint32_t lane = 0; lane < kLanes; ++lane)
            if (warp->alive >> lane & 1) lanes<uint32_t>(*warp, result)[lane].value = count;
    }
}

// A block, to its end.
void Runner::run_block() {
    Block& block = place_->block;
    const auto never = [&](const char* what) {
        const auto w = std::find_if(block.warps.begin(), block.warps.end(),
                                    [](const Warp& each) { return !each.ended; });
        fault(block, block.function->code[w == block.warps.end() ? 0 : w->groups[0].pc - 1], what);
    };
    // Rounds in which all that ran asked for what others do, and nothing else.
    for (uint32_t idle_rounds = 0;;) {
        bool all_ended = true, any_ran = false, any_went_on = false;
        for (Warp& w : block.warps) {
            if (w.ended) continue;
            all_ended = false;
            if (w.at_barrier) continue;
            any_ran = true;
            run_warp(w);
            any_went_on |= !w.only_asks;
            // Those that have ended are not waited for.
            if (w.ended)
                for (Barrier& barrier : block.barriers) meet(block, barrier);
        }
        if (all_ended) break;
        if (!any_ran) never("warps wait for warps that never come");
        idle_rounds = any_went_on ? 0 : idle_rounds + 1;
        if (idle_rounds == kIdleRounds)
            never("warps wait for a barrier in memory that nobody completes");
    }
    early_.block_ends(block.waited, block.let_next_first);
}

Runner::Runner() : place_(std::make_unique<Place>()) {}
Runner::~Runner() = default;

void Runner::run(const Launch& launch, const FindMemory& memory) {
    check(launch);
    early_.begin(launch.function->name, launch.early);
    place_->prepare(launch, memory);
    place_->block.early = &early_;
    for (uint32_t z = 0; z < launch.grid[2]; ++z)
        for (uint32_t y = 0; y < launch.grid[1]; ++y)
            for (uint32_t x = 0; x < launch.grid[0]; ++x) {
                place_->begin({x, y, z});
                run_block();
            }
    if (!early_.end())
        throw Fault(launch.function->name + ": it ends without having waited for those ahead");
}

}  // namespace granary::test::ptx

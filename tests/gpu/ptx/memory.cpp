// SPDX-License-Identifier: GPL-3.0-or-later
// Loads, stores and atomics. Every address is looked at before it is used.
#include <algorithm>
#include <type_traits>

#include "tests/gpu/ptx/operation.h"
#include "tests/gpu/ptx/warp.h"

namespace granary::test::ptx {

void fault(const Block& block, const Instruction& i, const std::string& what) {
    const auto place = [](const std::array<uint32_t, 3>& at) {
        return std::to_string(at[0]) + "," + std::to_string(at[1]) + "," + std::to_string(at[2]);
    };
    throw Fault(block.function->name + ", block " + place(block.number) + " of " +
                place(block.grid) + ", instruction " +
                std::to_string(&i - block.function->code.data()) + " " + std::string(i.text) +
                ": " + what);
}

std::byte* shared_at(const Block& block, uint64_t offset, uint32_t bytes, const Instruction& i) {
    offset = static_cast<uint32_t>(offset);
    const uint64_t end = offset + bytes;
    const bool own = end <= block.function->shared_bytes;
    const bool of_launch = offset >= block.function->added_at &&
                           end <= block.function->added_at + block.shared_of_launch;
    if (!own && !of_launch)
        fault(block, i,
              std::to_string(bytes) + " bytes at " + std::to_string(offset) +
                  " of shared memory, where the kernel has " +
                  std::to_string(block.function->shared_bytes) + " and the launch " +
                  std::to_string(block.shared_of_launch) + " from " +
                  std::to_string(block.function->added_at) + " on");
    return block.shared + offset;
}

std::byte* memory_at(Warp& warp, uint64_t address, uint32_t bytes, const Instruction& i) {
    Block& block = *warp.block;
    const auto inside = [&](Span span) {
        return address >= span.begin && address < span.end && span.end - address >= bytes;
    };
    if (!inside(block.known)) {
        const auto own = [&](const std::byte* begin, size_t size) {
            const auto at = reinterpret_cast<uintptr_t>(begin);
            return inside({at, at + size});
        };
        const Function& function = *block.function;
        if (own(block.shared, function.added_at + block.shared_of_launch) ||
            own(warp.frames, size_t{kLanes} * function.frame_bytes) ||
            own(block.parameters, function.parameter_bytes))
            return reinterpret_cast<std::byte*>(address);
        block.known = (*block.memory)(address);
        if (!inside(block.known)) {
            char text[32];
            std::snprintf(text, sizeof text, "%#lx", static_cast<unsigned long>(address));
            fault(block, i,
                  std::to_string(bytes) + " bytes at " + text +
                      ", which is no memory that a kernel may use");
        }
    }
    return reinterpret_cast<std::byte*>(address);
}

void note_read(Warp& warp, uint32_t lane, uint64_t at, uint32_t bytes, const Instruction& i) {
    const auto offset = static_cast<uint32_t>(at);
    Races& races = warp.block->races;
    if (!races.read(warp.number, lane, offset, bytes)) fault(*warp.block, i, races.what());
}

void note_write(Warp& warp, uint32_t lane, uint64_t at, uint32_t bytes, const Instruction& i) {
    const auto offset = static_cast<uint32_t>(at);
    Races& races = warp.block->races;
    if (!races.write(warp.number, lane, offset, bytes)) fault(*warp.block, i, races.what());
}

void note_global_read(Warp& warp, uint32_t lane, uint64_t at, uint32_t bytes,
                      const Instruction& i) {
    if (warp.waited >> lane & 1) return;
    if (const std::string writer = warp.block->early->writer_of(at, at + bytes); !writer.empty())
        fault(*warp.block, i,
              "reads before it waits for the kernels ahead what " + writer + " writes");
}

void note_global_write(Warp& warp, uint32_t lane, uint64_t at, uint32_t bytes,
                       const Instruction& i) {
    if (!(warp.waited >> lane & 1)) fault(*warp.block, i, "writes before it waits for those ahead");
    warp.block->early->wrote(at, at + bytes);
}

namespace {

enum class Space : uint8_t { any, shared, frame, parameter };

constexpr uint32_t kBase = 4;  // register of the address; data are 0 to 3

// Where the lanes' values lie. Errors: Fault, where one lies outside what the kernel may use.
struct Places {
    std::array<std::byte*, kLanes> at;
    bool in_shared = false;  // some may be
};

template <Space kSpace>
void find_places(Warp& w, const Instruction& i, uint32_t bytes, Places& places) {
    std::array<uint64_t, kLanes> at;
    if (i.at[kBase] == kNoGuard) {
        at.fill(i.value);
    } else if (i.is_wide(kBase)) {
        const auto* const base = lanes<uint64_t>(w, i.at[kBase]);
        for (uint32_t lane = 0; lane < kLanes; ++lane) at[lane] = base[lane].value + i.value;
    } else {
        const auto* const base = lanes<uint32_t>(w, i.at[kBase]);
        for (uint32_t lane = 0; lane < kLanes; ++lane) at[lane] = base[lane].value + i.value;
    }
    uint64_t least = ~uint64_t{0}, most = 0, all = 0;
    each_lane(w, [&](uint32_t lane) {
        least = std::min(least, at[lane]);
        most = std::max(most, at[lane]);
        all |= at[lane];
    });
    if (all % bytes != 0) fault(*w.block, i, "an address that is not aligned");
    const Function& function = *w.block->function;
    const auto offset_from = [&](std::byte* base) {
        for (uint32_t lane = 0; lane < kLanes; ++lane) places.at[lane] = base + at[lane];
    };
    if constexpr (kSpace == Space::shared) {
        (void)shared_at(*w.block, least, bytes, i);
        (void)shared_at(*w.block, most, bytes, i);
        if ((least < function.added_at) == (most < function.added_at))  // all in one part
            return offset_from(w.block->shared);
        each_lane(
            w, [&](uint32_t lane) { places.at[lane] = shared_at(*w.block, at[lane], bytes, i); });
    } else if constexpr (kSpace == Space::frame) {
        if (most > function.frame_bytes || function.frame_bytes - most < bytes)
            fault(*w.block, i, "beyond the lane's own memory");
        for (uint32_t lane = 0; lane < kLanes; ++lane)
            places.at[lane] = w.frames + size_t{lane} * function.frame_bytes + at[lane];
    } else if constexpr (kSpace == Space::parameter) {
        if (most > function.parameter_bytes || function.parameter_bytes - most < bytes)
            fault(*w.block, i, "beyond the kernel's parameters");
        offset_from(w.block->parameters);
    } else {
        const Span known = w.block->known;
        const bool all_known =
            least >= known.begin && most < known.end && known.end - most >= bytes;
        places.in_shared = !all_known;
        if (!all_known)
            each_lane(w, [&](uint32_t lane) { (void)memory_at(w, at[lane], bytes, i); });
        for (uint32_t lane = 0; lane < kLanes; ++lane)
            places.at[lane] = reinterpret_cast<std::byte*>(at[lane]);
    }
}

// Calls note(lane, offset) for the lanes whose place is in the block's shared memory.
template <Space kSpace, class F>
void each_shared(const Warp& w, const Places& places, F&& note) {
    if (kSpace != Space::shared && !(kSpace == Space::any && places.in_shared)) return;
    const Block& block = *w.block;
    const size_t size = block.function->added_at + block.shared_of_launch;
    each_lane(w, [&](uint32_t lane) {
        const auto offset = static_cast<size_t>(places.at[lane] - block.shared);
        if (offset < size) note(lane, offset);
    });
}

// Calls note(lane, address) for the lanes whose place is in global memory.
template <Space kSpace, class F>
void each_global(const Warp& w, const Places& places, F&& note) {
    if (kSpace != Space::any) return;
    const Span global = w.block->known;
    each_lane(w, [&](uint32_t lane) {
        const auto at = reinterpret_cast<uintptr_t>(places.at[lane]);
        if (at >= global.begin && at < global.end) note(lane, at);
    });
}

template <Space kSpace, class T>
void load(Warp& w, const Instruction& i) {
    Places places;
    const uint32_t bytes = static_cast<uint32_t>(sizeof(T)) * i.parts;
    find_places<kSpace>(w, i, bytes, places);
    each_shared<kSpace>(w, places,
                        [&](uint32_t lane, size_t at) { note_read(w, lane, at, bytes, i); });
    if (w.waited != kAll)
        each_global<kSpace>(w, places, [&](uint32_t lane, uint64_t at) {
            note_global_read(w, lane, at, bytes, i);
        });
    for (uint32_t p = 0; p < i.parts; ++p) {
        if (i.at[p] == kNoGuard) continue;
        // The host may write what a kernel waits for.
        const auto value = [&](uint32_t lane) {
            return __atomic_load_n(reinterpret_cast<const T*>(places.at[lane]) + p,
                                   __ATOMIC_ACQUIRE);
        };
        if (i.is_wide(p)) {
            auto* const d = lanes<uint64_t>(w, i.at[p]);
            each_lane(w,
                      [&](uint32_t lane) { d[lane].value = static_cast<uint64_t>(value(lane)); });
        } else {
            auto* const d = lanes<uint32_t>(w, i.at[p]);
            each_lane(w,
                      [&](uint32_t lane) { d[lane].value = static_cast<uint32_t>(value(lane)); });
        }
    }
}

template <Space kSpace, class T>
void store(Warp& w, const Instruction& i) {
    Places places;
    const uint32_t bytes = static_cast<uint32_t>(sizeof(T)) * i.parts;
    find_places<kSpace>(w, i, bytes, places);
    each_shared<kSpace>(w, places,
                        [&](uint32_t lane, size_t at) { note_write(w, lane, at, bytes, i); });
    each_global<kSpace>(
        w, places, [&](uint32_t lane, uint64_t at) { note_global_write(w, lane, at, bytes, i); });
    for (uint32_t p = 0; p < i.parts; ++p) {
        each_lane(w, [&](uint32_t lane) {
            __atomic_store_n(reinterpret_cast<T*>(places.at[lane]) + p,
                             static_cast<T>(bits(w, i, p, lane)), __ATOMIC_RELEASE);
        });
    }
}

template <Space kSpace>
Handler by_type(Type type, bool loads) {
    const auto pick = [&](auto x) -> Handler {
        using T = decltype(x);
        return loads ? load<kSpace, T> : store<kSpace, T>;
    };
    switch (type) {
        case Type::s8:
            return pick(int8_t{});
        case Type::b8:
        case Type::u8:
            return pick(uint8_t{});
        case Type::s16:
            return pick(int16_t{});
        case Type::b16:
        case Type::f16:
        case Type::u16:
            return pick(uint16_t{});
        case Type::s32:
            return pick(int32_t{});
        case Type::b32:
        case Type::u32:
        case Type::f32:
        case Type::f16x2:
            return pick(uint32_t{});
        case Type::s64:
        case Type::b64:
        case Type::u64:
        case Type::f64:
            return pick(uint64_t{});
        default:
            return nullptr;
    }
}

Space space_of(const Operation& o, const Operand& address) {
    if (o.has("shared") || o.has("shared::cta") || o.has("shared::cluster")) return Space::shared;
    if (o.has("local") || address.in_frame) return Space::frame;
    if (o.has("param")) return Space::parameter;
    return Space::any;
}

void put_address(Instruction& to, const Operand& address) {
    to.at[kBase] = address.at;
    to.value = address.number;
    if (address.bytes == 8) to.wide |= 1u << kBase;
}

void loads_and_stores(const Operation& o, FunctionRoom& room, Instruction& to) {
    const bool loads = o.parts[0] == "ld";
    const Operand& data = o.operand(loads ? 0 : 1);
    const Operand& address = o.operand(loads ? 1 : 0);
    const Type type = o.type();
    if (address.kind != Operand::Kind::address) o.unknown("not in this form");
    const std::vector<Operand> one{data};
    const std::vector<Operand>& parts = data.kind == Operand::Kind::vector ? data.parts : one;
    if (parts.size() > 4) o.unknown("more than four at once");
    to.parts = static_cast<uint8_t>(parts.size());
    for (uint32_t p = 0; p < parts.size(); ++p) {
        if (parts[p].kind == Operand::Kind::sink)
            to.at[p] = kNoGuard;
        else
            room.put(to, p, parts[p], type);
    }
    put_address(to, address);
    switch (space_of(o, address)) {
        case Space::shared:
            to.run = by_type<Space::shared>(type, loads);
            break;
        case Space::frame:
            to.run = by_type<Space::frame>(type, loads);
            break;
        case Space::parameter:
            to.run = by_type<Space::parameter>(type, loads);
            break;
        case Space::any:
            to.run = by_type<Space::any>(type, loads);
            break;
    }
    if (!to.run) o.unknown("not of this type");
}

// ---- atomics: register 0 gets what was there, 1 and 2 are the operands.

enum class Change : uint8_t { add, exchange, compare, least, most, both, either, other };

template <Space kSpace, class T, Change kChange>
void change(Warp& w, const Instruction& i) {
    Places places;
    find_places<kSpace>(w, i, sizeof(T), places);
    each_global<kSpace>(w, places, [&](uint32_t lane, uint64_t at) {
        note_global_write(w, lane, at, sizeof(T), i);
    });
    each_lane(w, [&](uint32_t lane) {
        auto* const at = reinterpret_cast<T*>(places.at[lane]);
        const uint64_t bits_b = bits(w, i, 1, lane);
        T b, old;
        std::memcpy(&b, &bits_b, sizeof b);
        __atomic_load(at, &old, __ATOMIC_SEQ_CST);
        for (;;) {
            T next = b;
            if constexpr (kChange == Change::add) next = static_cast<T>(old + b);
            if constexpr (kChange == Change::least) next = std::min(old, b);
            if constexpr (kChange == Change::most) next = std::max(old, b);
            if constexpr (std::is_integral_v<T>) {
                if constexpr (kChange == Change::both) next = old & b;
                if constexpr (kChange == Change::either) next = old | b;
                if constexpr (kChange == Change::other) next = old ^ b;
                if constexpr (kChange == Change::compare)
                    next = old == b ? static_cast<T>(bits(w, i, 2, lane)) : old;
            }
            if (__atomic_compare_exchange(at, &old, &next, false, __ATOMIC_SEQ_CST,
                                          __ATOMIC_SEQ_CST))
                break;
        }
        if (i.at[0] == kNoGuard) return;
        uint64_t result = 0;
        std::memcpy(&result, &old, sizeof old);
        set_bits(w, i, 0, lane, result);
    });
}

template <Space kSpace, class T>
Handler change_of(const Operation& o) {
    if (o.has("add")) return change<kSpace, T, Change::add>;
    if (o.has("exch")) return change<kSpace, T, Change::exchange>;
    if (o.has("cas")) return change<kSpace, T, Change::compare>;
    if (o.has("min")) return change<kSpace, T, Change::least>;
    if (o.has("max")) return change<kSpace, T, Change::most>;
    if (o.has("and")) return change<kSpace, T, Change::both>;
    if (o.has("or")) return change<kSpace, T, Change::either>;
    if (o.has("xor")) return change<kSpace, T, Change::other>;
    return nullptr;
}

template <Space kSpace>
Handler change_by_type(const Operation& o) {
    switch (o.type()) {
        case Type::b32:
        case Type::u32:
            return change_of<kSpace, uint32_t>(o);
        case Type::s32:
            return change_of<kSpace, int32_t>(o);
        case Type::b64:
        case Type::u64:
            return change_of<kSpace, uint64_t>(o);
        case Type::s64:
            return change_of<kSpace, int64_t>(o);
        case Type::f32:
            return change_of<kSpace, float>(o);
        default:
            return nullptr;
    }
}

void atomics(const Operation& o, FunctionRoom& room, Instruction& to) {
    const size_t first = o.parts[0] == "red" ? 0 : 1;  // no result
    const Operand& address = o.operand(first);
    to.at[0] = kNoGuard;
    if (first == 1 && o.operand(0).kind == Operand::Kind::reg)
        room.put(to, 0, o.operand(0), o.type());
    room.put(to, 1, o.operand(first + 1), o.type());
    if (o.has("cas")) room.put(to, 2, o.operand(first + 2), o.type());
    put_address(to, address);
    to.run = space_of(o, address) == Space::shared ? change_by_type<Space::shared>(o)
                                                   : change_by_type<Space::any>(o);
    if (!to.run) o.unknown("not in this form");
}

void wait_for_those_ahead(Warp& w, const Instruction&) {
    w.waited |= w.mask;
    w.block->waited = true;
}
void let_next_begin(Warp& w, const Instruction&) {
    w.block->let_next_first |= !w.block->waited;
}
void early_launches(const Operation& o, FunctionRoom&, Instruction& to) {
    to.run = o.has("wait") ? wait_for_those_ahead : let_next_begin;
}

// What only tells the hardware what to expect, or orders what is in order here.
void nothing(const Operation&, FunctionRoom&, Instruction& to) {
    to.control = Control::nothing;
}

}  // namespace

Builder memory_builder(std::string_view name) {
    static const std::map<std::string_view, Builder> builders{
        {"ld", loads_and_stores},  {"ldu", loads_and_stores},
        {"st", loads_and_stores},  {"atom", atomics},
        {"red", atomics},          {"membar", nothing},
        {"fence", nothing},        {"prefetch", nothing},
        {"createpolicy", nothing}, {"griddepcontrol", early_launches},
        {"nanosleep", nothing},    {"setmaxnreg", nothing},
    };
    return find_builder(builders, name);
}

}  // namespace granary::test::ptx

// SPDX-License-Identifier: GPL-3.0-or-later
// Moves, comparisons and choices; addresses from one kind of memory to another.
#include <cmath>
#include <type_traits>

#include "tests/gpu/ptx/operation.h"
#include "tests/gpu/ptx/warp.h"

namespace granary::test::ptx {
namespace {

template <class T>
void move(Warp& w, const Instruction& i) {
    auto* const d = lanes<T>(w, i.at[0]);
    const auto* const a = lanes<T>(w, i.at[1]);
    each_lane(w, [&](uint32_t l) { d[l].value = a[l].value; });
}
void move_of_two_sizes(Warp& w, const Instruction& i) {
    each_lane(w, [&](uint32_t l) { set_bits(w, i, 0, l, bits(w, i, 1, l)); });
}
void move_predicate(Warp& w, const Instruction& i) {
    uint32_t& d = predicate(w, i.at[0]);
    d = (d & ~w.mask) | (predicate(w, i.at[1]) & w.mask);
}
void set_predicate(Warp& w, const Instruction& i) {
    uint32_t& d = predicate(w, i.at[0]);
    d = i.value ? d | w.mask : d & ~w.mask;
}

// value: bits of a part; parts: how many. The whole is register 0, the parts are 1...
void pack(Warp& w, const Instruction& i) {
    each_lane(w, [&](uint32_t l) {
        uint64_t whole = 0;
        for (uint32_t p = 0; p < i.parts; ++p)
            whole |= (bits(w, i, 1 + p, l) & ((uint64_t{1} << i.value) - 1)) << (p * i.value);
        set_bits(w, i, 0, l, whole);
    });
}
void unpack(Warp& w, const Instruction& i) {
    each_lane(w, [&](uint32_t l) {
        const uint64_t whole = bits(w, i, 0, l);
        for (uint32_t p = 0; p < i.parts; ++p)
            if (i.at[1 + p] != kNoGuard)
                set_bits(w, i, 1 + p, l, whole >> (p * i.value) & ((uint64_t{1} << i.value) - 1));
    });
}

void moves(const Operation& o, FunctionRoom& room, Instruction& to) {
    const Type type = o.type();
    const Operand& target = o.operand(0);
    const Operand& source = o.operand(1);
    if (type == Type::pred) {
        to.at[0] = target.at;
        to.at[1] = source.at;
        to.value = source.number;
        to.run = source.kind == Operand::Kind::reg ? move_predicate : set_predicate;
        return;
    }
    const bool packs = source.kind == Operand::Kind::vector;
    if (packs || target.kind == Operand::Kind::vector) {
        const Operand& whole = packs ? target : source;
        const auto& parts = (packs ? source : target).parts;
        to.run = packs ? pack : unpack;
        to.parts = static_cast<uint8_t>(parts.size());
        to.value = 8 * bytes_of(type) / parts.size();
        room.put(to, 0, whole, type);
        for (uint32_t p = 0; p < parts.size(); ++p) {
            if (parts[p].kind == Operand::Kind::sink)
                to.at[1 + p] = kNoGuard;
            else
                room.put(to, 1 + p, parts[p], to.value == 32 ? Type::b32 : Type::b16);
        }
        return;
    }
    room.put(to, 0, target, type);
    room.put(to, 1, source, type);
    to.run = to.is_wide(0) != to.is_wide(1) ? move_of_two_sizes
             : to.is_wide(0)                ? move<uint64_t>
                                            : move<uint32_t>;
}

// ---- comparisons

template <class T>
bool unordered(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return std::isnan(a) || std::isnan(b);
    return false;
}
struct Equal {
    template <class T>
    static bool of(T a, T b) {
        return a == b;
    }
};
struct Unequal {  // and both are numbers
    template <class T>
    static bool of(T a, T b) {
        return a != b && !unordered(a, b);
    }
};
struct Less {
    template <class T>
    static bool of(T a, T b) {
        return a < b;
    }
};
struct LessEqual {
    template <class T>
    static bool of(T a, T b) {
        return a <= b;
    }
};
struct Greater {
    template <class T>
    static bool of(T a, T b) {
        return a > b;
    }
};
struct GreaterEqual {
    template <class T>
    static bool of(T a, T b) {
        return a >= b;
    }
};
template <class Op>
struct OrUnordered {
    template <class T>
    static bool of(T a, T b) {
        return Op::of(a, b) || unordered(a, b);
    }
};
struct Unordered {
    template <class T>
    static bool of(T a, T b) {
        return unordered(a, b);
    }
};
struct Ordered {
    template <class T>
    static bool of(T a, T b) {
        return !unordered(a, b);
    }
};

enum : uint64_t { kAlone, kAnd, kOr, kXor, kNegated = 4 };

// Registers 2 and 3 are compared, 4 is a predicate that the result meets as `value` says; 0 gets
// the result, 1, where there is one, that of the opposite.
template <class T, class Op>
void compare(Warp& w, const Instruction& i) {
    const auto* const a = lanes<T>(w, i.at[2]);
    const auto* const b = lanes<T>(w, i.at[3]);
    uint32_t holds = 0;
    if (w.mask == kAll) {
        for (uint32_t l = 0; l < kLanes; ++l)
            holds |= static_cast<uint32_t>(Op::of(a[l].value, b[l].value)) << l;
    } else {
        each_lane(w, [&](uint32_t l) {
            holds |= static_cast<uint32_t>(Op::of(a[l].value, b[l].value)) << l;
        });
    }
    uint32_t with = i.value == kAlone ? 0 : predicate(w, i.at[4]);
    if (i.value & kNegated) with = ~with;
    const auto meet = [&](uint32_t x) {
        switch (i.value & 3) {
            case kAnd:
                return x & with;
            case kOr:
                return x | with;
            case kXor:
                return x ^ with;
            default:
                return x;
        }
    };
    const uint32_t result = meet(holds), opposite = meet(~holds);
    uint32_t& d = predicate(w, i.at[0]);
    d = (d & ~w.mask) | (result & w.mask);
    if (i.at[1] == kNoGuard) return;
    uint32_t& e = predicate(w, i.at[1]);
    e = (e & ~w.mask) | (opposite & w.mask);
}

template <class T>
Handler comparison(std::string_view name) {
    static const std::map<std::string_view, Handler> handlers{
        {"eq", compare<T, Equal>},
        {"ne", compare<T, Unequal>},
        {"lt", compare<T, Less>},
        {"le", compare<T, LessEqual>},
        {"gt", compare<T, Greater>},
        {"ge", compare<T, GreaterEqual>},
        {"lo", compare<T, Less>},
        {"ls", compare<T, LessEqual>},
        {"hi", compare<T, Greater>},
        {"hs", compare<T, GreaterEqual>},
        {"equ", compare<T, OrUnordered<Equal>>},
        {"neu", compare<T, OrUnordered<Unequal>>},
        {"ltu", compare<T, OrUnordered<Less>>},
        {"leu", compare<T, OrUnordered<LessEqual>>},
        {"gtu", compare<T, OrUnordered<Greater>>},
        {"geu", compare<T, OrUnordered<GreaterEqual>>},
        {"num", compare<T, Ordered>},
        {"nan", compare<T, Unordered>},
    };
    const auto found = handlers.find(name);
    return found == handlers.end() ? nullptr : found->second;
}

void comparisons(const Operation& o, FunctionRoom& room, Instruction& to) {
    const Type type = o.type();
    const std::string_view how = o.parts.at(1);
    if (o.has("ftz")) o.unknown("not in this form");
    switch (type) {
        case Type::b16:
        case Type::u16:
            to.run = comparison<uint16_t>(how);
            break;
        case Type::s16:
            to.run = comparison<int16_t>(how);
            break;
        case Type::b32:
        case Type::u32:
            to.run = comparison<uint32_t>(how);
            break;
        case Type::s32:
            to.run = comparison<int32_t>(how);
            break;
        case Type::b64:
        case Type::u64:
            to.run = comparison<uint64_t>(how);
            break;
        case Type::s64:
            to.run = comparison<int64_t>(how);
            break;
        case Type::f32:
            to.run = comparison<float>(how);
            break;
        case Type::f64:
            to.run = comparison<double>(how);
            break;
        default:
            break;
    }
    if (!to.run) o.unknown("not between these types");
    const Operand& target = o.operand(0);
    to.at[0] = target.at;
    to.at[1] = target.parts.empty() ? kNoGuard : target.parts[0].at;
    room.put(to, 2, o.operand(1), type);
    room.put(to, 3, o.operand(2), type);
    if (o.operands.size() > 3) {
        to.value = o.has("and") ? kAnd : o.has("or") ? kOr : kXor;
        to.at[4] = o.operand(3).at;
        if (o.operand(3).negated) to.value |= kNegated;
    }
}

template <class T>
void select(Warp& w, const Instruction& i) {
    auto* const d = lanes<T>(w, i.at[0]);
    const auto* const a = lanes<T>(w, i.at[1]);
    const auto* const b = lanes<T>(w, i.at[2]);
    const uint32_t p = predicate(w, i.at[3]);
    each_lane(w, [&](uint32_t l) { d[l].value = p >> l & 1 ? a[l].value : b[l].value; });
}

void selection(const Operation& o, FunctionRoom& room, Instruction& to) {
    for (uint32_t i = 0; i < 3; ++i) room.put(to, i, o.operand(i), o.type());
    to.at[3] = o.operand(3).at;
    to.run = to.is_wide(0) ? select<uint64_t> : select<uint32_t>;
}

// ---- addresses. Shared memory is known by its offset in the block's, and anybody's address of it
// is the processor's; so it is with a lane's own memory, and parameters.

enum class From : uint64_t { shared, local, parameter };

void to_any(Warp& w, const Instruction& i) {
    const Block& block = *w.block;
    each_lane(w, [&](uint32_t l) {
        std::byte* base = block.shared;
        if (i.value == static_cast<uint64_t>(From::parameter)) base = block.parameters;
        if (i.value == static_cast<uint64_t>(From::local))
            base = w.frames + size_t{l} * block.function->frame_bytes;
        set_bits(w, i, 0, l, reinterpret_cast<uintptr_t>(base) + bits(w, i, 1, l));
    });
}
void from_any(Warp& w, const Instruction& i) {
    const Block& block = *w.block;
    each_lane(w, [&](uint32_t l) {
        std::byte* base = block.shared;
        if (i.value == static_cast<uint64_t>(From::local))
            base = w.frames + size_t{l} * block.function->frame_bytes;
        set_bits(w, i, 0, l, bits(w, i, 1, l) - reinterpret_cast<uintptr_t>(base));
    });
}

void addresses(const Operation& o, FunctionRoom& room, Instruction& to) {
    room.put(to, 0, o.operand(0), o.type());
    room.put(to, 1, o.operand(1), o.type());
    if (o.has("global") || o.has("const")) {
        to.run = move<uint64_t>;
        return;
    }
    to.value = static_cast<uint64_t>(o.has("shared")  ? From::shared
                                     : o.has("local") ? From::local
                                                      : From::parameter);
    to.run = o.has("to") ? from_any : to_any;
}

}  // namespace

Builder move_builder(std::string_view name) {
    static const std::map<std::string_view, Builder> builders{
        {"mov", moves}, {"setp", comparisons}, {"selp", selection}, {"cvta", addresses}};
    return find_builder(builders, name);
}

}  // namespace granary::test::ptx

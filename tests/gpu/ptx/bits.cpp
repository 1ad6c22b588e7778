// SPDX-License-Identifier: GPL-3.0-or-later
// Bits of integers, and predicates.
#include <algorithm>
#include <bit>

#include "tests/gpu/ptx/elementwise.h"

namespace granary::test::ptx {
namespace {

struct And {
    template <class T>
    static T of(T a, T b) {
        return static_cast<T>(a & b);
    }
};
struct Or {
    template <class T>
    static T of(T a, T b) {
        return static_cast<T>(a | b);
    }
};
struct Xor {
    template <class T>
    static T of(T a, T b) {
        return static_cast<T>(a ^ b);
    }
};
struct Not {
    template <class T>
    static T of(T a) {
        return static_cast<T>(~a);
    }
};
struct CountOnes {
    static uint32_t of(uint32_t a) { return static_cast<uint32_t>(std::popcount(a)); }
};
struct LeadingZeros {
    static uint32_t of(uint32_t a) { return static_cast<uint32_t>(std::countl_zero(a)); }
};
struct Reverse {
    static uint32_t of(uint32_t a) {
        uint32_t r = 0;
        for (uint32_t bit = 0; bit < 32; ++bit) r |= (a >> bit & 1) << (31 - bit);
        return r;
    }
};

// A shift's distance is of 32 bits, and 0 or the sign comes in where it is too long.
template <class T, bool kLeft>
void shift(Warp& w, const Instruction& i) {
    auto* const d = lanes<T>(w, i.at[0]);
    const auto* const a = lanes<T>(w, i.at[1]);
    const auto* const n = lanes<uint32_t>(w, i.at[2]);
    constexpr uint32_t kBits = 8 * sizeof(T);
    each_lane(w, [&](uint32_t l) {
        const uint32_t by = n[l].value;
        if (kLeft)
            d[l].value = by >= kBits ? T{0} : static_cast<T>(wrap(a[l].value) << by);
        else if (std::is_signed_v<T>)
            d[l].value = static_cast<T>(a[l].value >> (by >= kBits ? kBits - 1 : by));
        else
            d[l].value = by >= kBits ? T{0} : static_cast<T>(a[l].value >> by);
    });
}

template <bool kLeft, bool kClamp>
void funnel(Warp& w, const Instruction& i) {
    auto* const d = lanes<uint32_t>(w, i.at[0]);
    const auto* const low = lanes<uint32_t>(w, i.at[1]);
    const auto* const high = lanes<uint32_t>(w, i.at[2]);
    const auto* const n = lanes<uint32_t>(w, i.at[3]);
    each_lane(w, [&](uint32_t l) {
        const uint64_t both = uint64_t{high[l].value} << 32 | low[l].value;
        const uint32_t by = kClamp ? std::min(n[l].value, 32u) : n[l].value & 31;
        d[l].value = static_cast<uint32_t>(kLeft ? both << by >> 32 : both >> by);
    });
}

void permute(Warp& w, const Instruction& i) {
    auto* const d = lanes<uint32_t>(w, i.at[0]);
    const auto* const a = lanes<uint32_t>(w, i.at[1]);
    const auto* const b = lanes<uint32_t>(w, i.at[2]);
    const auto* const s = lanes<uint32_t>(w, i.at[3]);
    each_lane(w, [&](uint32_t l) {
        const uint64_t bytes = uint64_t{b[l].value} << 32 | a[l].value;
        uint32_t result = 0;
        for (uint32_t k = 0; k < 4; ++k) {
            const uint32_t which = s[l].value >> (4 * k) & 15;
            uint32_t byte = bytes >> (8 * (which & 7)) & 255;
            if (which & 8) byte = byte & 128 ? 255 : 0;  // its sign
            result |= byte << (8 * k);
        }
        d[l].value = result;
    });
}

template <class T>
void insert_bits(Warp& w, const Instruction& i) {
    auto* const d = lanes<T>(w, i.at[0]);
    const auto* const a = lanes<T>(w, i.at[1]);
    const auto* const b = lanes<T>(w, i.at[2]);
    const auto* const at = lanes<uint32_t>(w, i.at[3]);
    const auto* const count = lanes<uint32_t>(w, i.at[4]);
    each_lane(w, [&](uint32_t l) {
        constexpr uint32_t kBits = 8 * sizeof(T);
        const uint32_t from = at[l].value & 255, n = count[l].value & 255;
        T mask = n >= kBits ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << n) - 1);
        mask = from >= kBits ? T{0} : static_cast<T>(mask << from);
        const T moved = from >= kBits ? T{0} : static_cast<T>(a[l].value << from);
        d[l].value = static_cast<T>((b[l].value & ~mask) | (moved & mask));
    });
}

template <class T>
void extract_bits(Warp& w, const Instruction& i) {
    auto* const d = lanes<T>(w, i.at[0]);
    const auto* const a = lanes<T>(w, i.at[1]);
    const auto* const at = lanes<uint32_t>(w, i.at[2]);
    const auto* const count = lanes<uint32_t>(w, i.at[3]);
    each_lane(w, [&](uint32_t l) {
        constexpr uint32_t kBits = 8 * sizeof(T);
        const uint32_t from = at[l].value & 255, n = count[l].value & 255;
        T result = 0;
        const uint32_t sign_at = std::min(from + n, kBits) - 1;
        const bool sign = std::is_signed_v<T> && n > 0 && (a[l].value >> sign_at & 1);
        for (uint32_t k = 0; k < kBits; ++k) {
            const bool bit = k < n && from + k < kBits ? a[l].value >> (from + k) & 1 : sign;
            result = static_cast<T>(result | static_cast<T>(static_cast<T>(bit) << k));
        }
        d[l].value = result;
    });
}

// value: the table of three bits' results.
void logic_of_three(Warp& w, const Instruction& i) {
    auto* const d = lanes<uint32_t>(w, i.at[0]);
    const auto* const a = lanes<uint32_t>(w, i.at[1]);
    const auto* const b = lanes<uint32_t>(w, i.at[2]);
    const auto* const c = lanes<uint32_t>(w, i.at[3]);
    each_lane(w, [&](uint32_t l) {
        uint32_t result = 0;
        for (uint32_t k = 0; k < 8; ++k) {
            if (!(i.value >> k & 1)) continue;
            result |= (k & 4 ? a[l].value : ~a[l].value) & (k & 2 ? b[l].value : ~b[l].value) &
                      (k & 1 ? c[l].value : ~c[l].value);
        }
        d[l].value = result;
    });
}

// Predicates, all lanes at once.
template <class Op>
void of_predicates(Warp& w, const Instruction& i) {
    const uint32_t a = predicate(w, i.at[1]), b = predicate(w, i.at[2]);
    uint32_t& d = predicate(w, i.at[0]);
    d = (d & ~w.mask) | (Op::of(a, b) & w.mask);
}
void not_predicate(Warp& w, const Instruction& i) {
    uint32_t& d = predicate(w, i.at[0]);
    d = (d & ~w.mask) | (~predicate(w, i.at[1]) & w.mask);
}

void counts(const Operation& o, FunctionRoom& room, Instruction& to) {
    const std::string_view name = o.parts[0];
    to.run = name == "popc"  ? unary<uint32_t, CountOnes>
             : name == "clz" ? unary<uint32_t, LeadingZeros>
                             : unary<uint32_t, Reverse>;
    if (bytes_of(o.type()) != 4) o.unknown("not of this type");
    put_all(o, room, to, Type::b32);
}

void logic(const Operation& o, FunctionRoom& room, Instruction& to) {
    const Type type = o.type();
    const std::string_view name = o.parts[0];
    if (type == Type::pred) {
        to.run = name == "and"   ? of_predicates<And>
                 : name == "or"  ? of_predicates<Or>
                 : name == "xor" ? of_predicates<Xor>
                                 : not_predicate;
    } else if (name == "not") {
        to.run = of_integers(type, [](auto x) -> Handler { return unary<decltype(x), Not>; });
    } else {
        to.run = name == "and"  ? integer_binary_of<And>(type)
                 : name == "or" ? integer_binary_of<Or>(type)
                                : integer_binary_of<Xor>(type);
    }
    put_all(o, room, to, type);
}

void shifts(const Operation& o, FunctionRoom& room, Instruction& to) {
    const Type type = o.type();
    const bool left = o.parts[0] == "shl";
    to.run = of_integers(type, [&](auto x) -> Handler {
        return left ? shift<decltype(x), true> : shift<decltype(x), false>;
    });
    room.put(to, 0, o.operand(0), type);
    room.put(to, 1, o.operand(1), type);
    room.put(to, 2, o.operand(2), Type::u32);
}

void bit_fields(const Operation& o, FunctionRoom& room, Instruction& to) {
    const Type type = o.type();
    const bool wide = bytes_of(type) == 8;
    const size_t whole = o.parts[0] == "bfi" ? 3 : 2;
    if (whole == 3)
        to.run = wide ? insert_bits<uint64_t> : insert_bits<uint32_t>;
    else
        to.run = type == Type::u32   ? extract_bits<uint32_t>
                 : type == Type::s32 ? extract_bits<int32_t>
                 : type == Type::u64 ? extract_bits<uint64_t>
                                     : extract_bits<int64_t>;
    for (uint32_t i = 0; i < o.operands.size(); ++i)
        room.put(to, i, o.operand(i), i < whole ? type : Type::u32);
}

void of_words(const Operation& o, FunctionRoom& room, Instruction& to) {
    const std::string_view name = o.parts[0];
    if (name == "prmt") {
        if (o.parts.size() != 2) o.unknown("not in this form");
        to.run = permute;
    } else if (name == "shf") {
        const bool left = o.has("l"), clamp = o.has("clamp");
        to.run = left ? (clamp ? funnel<true, true> : funnel<true, false>)
                      : (clamp ? funnel<false, true> : funnel<false, false>);
    } else {
        to.run = logic_of_three;
        to.value = o.operand(4).number;
        for (uint32_t i = 0; i < 4; ++i) room.put(to, i, o.operand(i), Type::b32);
        return;
    }
    put_all(o, room, to, Type::u32);
}

}  // namespace

Builder bits_builder(std::string_view name) {
    static const std::map<std::string_view, Builder> builders{
        {"popc", counts},  {"clz", counts},     {"brev", counts},    {"and", logic},
        {"or", logic},     {"xor", logic},      {"not", logic},      {"shl", shifts},
        {"shr", shifts},   {"bfi", bit_fields}, {"bfe", bit_fields}, {"prmt", of_words},
        {"shf", of_words}, {"lop3", of_words}};
    return find_builder(builders, name);
}

}  // namespace granary::test::ptx

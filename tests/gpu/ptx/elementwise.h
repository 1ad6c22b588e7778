// SPDX-License-Identifier: GPL-3.0-or-later
// Handlers of what each lane does by itself.
#pragma once

#include <type_traits>

#include "tests/gpu/ptx/operation.h"
#include "tests/gpu/ptx/warp.h"

namespace granary::test::ptx {

template <class T, class Op>
void unary(Warp& w, const Instruction& i) {
    auto* const d = lanes<T>(w, i.at[0]);
    const auto* const a = lanes<T>(w, i.at[1]);
    each_lane(w, [&](uint32_t l) { d[l].value = Op::of(a[l].value); });
}
template <class T, class Op>
void binary(Warp& w, const Instruction& i) {
    auto* const d = lanes<T>(w, i.at[0]);
    const auto* const a = lanes<T>(w, i.at[1]);
    const auto* const b = lanes<T>(w, i.at[2]);
    each_lane(w, [&](uint32_t l) { d[l].value = Op::of(a[l].value, b[l].value); });
}
template <class T, class Op>
void ternary(Warp& w, const Instruction& i) {
    auto* const d = lanes<T>(w, i.at[0]);
    const auto* const a = lanes<T>(w, i.at[1]);
    const auto* const b = lanes<T>(w, i.at[2]);
    const auto* const c = lanes<T>(w, i.at[3]);
    each_lane(w, [&](uint32_t l) { d[l].value = Op::of(a[l].value, b[l].value, c[l].value); });
}

// Integers wrap round.
template <class T>
auto wrap(T x) {
    if constexpr (std::is_integral_v<T>)
        return static_cast<std::make_unsigned_t<T>>(x);
    else
        return x;
}

// ---- by types: pick(T{}) gives the handler for values of T; null where the type is none of them

template <class F>
Handler of_integers(Type type, F&& pick) {
    switch (type) {
        case Type::b16:
        case Type::u16:
            return pick(uint16_t{});
        case Type::s16:
            return pick(int16_t{});
        case Type::b32:
        case Type::u32:
            return pick(uint32_t{});
        case Type::s32:
            return pick(int32_t{});
        case Type::b64:
        case Type::u64:
            return pick(uint64_t{});
        case Type::s64:
            return pick(int64_t{});
        default:
            return nullptr;
    }
}
template <class F>
Handler of_reals(Type type, F&& pick) {
    if (type == Type::f32) return pick(float{});
    if (type == Type::f64) return pick(double{});
    return nullptr;
}

template <class Op>
Handler integer_binary_of(Type type) {
    return of_integers(type, [](auto x) -> Handler { return binary<decltype(x), Op>; });
}

inline void put_all(const Operation& o, FunctionRoom& room, Instruction& to, Type type) {
    for (uint32_t i = 0; i < o.operands.size(); ++i) room.put(to, i, o.operand(i), type);
}

}  // namespace granary::test::ptx

// SPDX-License-Identifier: GPL-3.0-or-later
// Conversions between types.
#include <cmath>
#include <limits>
#include <type_traits>

#include "tests/gpu/ptx/half.h"
#include "tests/gpu/ptx/operation.h"
#include "tests/gpu/ptx/warp.h"

namespace granary::test::ptx {
namespace {

enum class Rounding : uint8_t { none, nearest, zero, down, up };

struct F16 {
    uint16_t bits;
};

template <class T>
inline constexpr bool kReal = std::is_floating_point_v<T> || std::is_same_v<T, F16>;

template <class T>
auto number(T x) {
    if constexpr (std::is_same_v<T, F16>)
        return from_half(x.bits);
    else
        return x;
}

template <class T>
T rounded(T x, Rounding rounding) {
    switch (rounding) {
        case Rounding::nearest:
            return std::nearbyint(x);
        case Rounding::zero:
            return std::trunc(x);
        case Rounding::down:
            return std::floor(x);
        case Rounding::up:
            return std::ceil(x);
        case Rounding::none:
            break;
    }
    return x;
}

// The nearest that To has: of a number that is too large its largest, of none 0.
template <class To, class From>
To saturated(From x) {
    if constexpr (std::is_floating_point_v<From>) {
        if (std::isnan(x)) return 0;
        if (x <= static_cast<From>(std::numeric_limits<To>::min()))
            return std::numeric_limits<To>::min();
        if (x >= static_cast<From>(std::numeric_limits<To>::max()))
            return std::numeric_limits<To>::max();
    }
    return static_cast<To>(x);
}

// kWhole: a real number is rounded to a whole one on the way.
template <class To, class From, Rounding kWhole, bool kSaturate>
void convert(Warp& w, const Instruction& i) {
    each_lane(w, [&](uint32_t lane) {
        const uint64_t word = bits(w, i, 1, lane);
        From from;
        std::memcpy(&from, &word, sizeof from);
        const auto x = number(from);
        uint64_t result = 0;
        if constexpr (kReal<From> && !kReal<To>) {
            const To to = saturated<To>(rounded(x, kWhole));
            result = static_cast<uint64_t>(static_cast<std::make_signed_t<To>>(to));
            if constexpr (std::is_unsigned_v<To>) result = to;
        } else if constexpr (kReal<To>) {
            auto y = x;
            if constexpr (kReal<From>) y = rounded(x, kWhole);
            if constexpr (kSaturate) y = std::isnan(y) ? 0 : y < 0 ? 0 : y > 1 ? 1 : y;
            To to;
            if constexpr (std::is_same_v<To, F16>) {
                if constexpr (std::is_same_v<decltype(y), float>)
                    to.bits = to_half(y);
                else
                    to.bits = to_half(static_cast<double>(y));
            } else {
                to = static_cast<To>(y);
            }
            std::memcpy(&result, &to, sizeof to);
        } else {
            const To to = static_cast<To>(x);
            result = std::is_signed_v<To> ? static_cast<uint64_t>(static_cast<int64_t>(to))
                                          : static_cast<uint64_t>(to);
        }
        set_bits(w, i, 0, lane, result);
    });
}

// Two floats to the halves of a register: the first is the high one.
template <bool kFinite>
void convert_two(Warp& w, const Instruction& i) {
    auto* const d = lanes<uint32_t>(w, i.at[0]);
    const auto* const high = lanes<float>(w, i.at[1]);
    const auto* const low = lanes<float>(w, i.at[2]);
    const auto half = [](float x) {
        const uint16_t bits = to_half(x);
        const bool infinite = (bits & 0x7fff) == 0x7c00;
        return kFinite && infinite ? static_cast<uint16_t>(bits - 1) : bits;
    };
    each_lane(w, [&](uint32_t l) {
        d[l].value = uint32_t{half(high[l].value)} << 16 | half(low[l].value);
    });
}

template <class F>
Handler of_any(Type type, F&& pick) {
    switch (type) {
        case Type::u8:
            return pick(uint8_t{});
        case Type::s8:
            return pick(int8_t{});
        case Type::u16:
            return pick(uint16_t{});
        case Type::s16:
            return pick(int16_t{});
        case Type::u32:
            return pick(uint32_t{});
        case Type::s32:
            return pick(int32_t{});
        case Type::u64:
            return pick(uint64_t{});
        case Type::s64:
            return pick(int64_t{});
        case Type::f16:
            return pick(F16{});
        case Type::f32:
            return pick(float{});
        case Type::f64:
            return pick(double{});
        default:
            return nullptr;
    }
}

template <class To, class From>
Handler handler(Rounding whole, bool saturate) {
    if constexpr (kReal<To>)
        if (saturate && whole == Rounding::none) return convert<To, From, Rounding::none, true>;
    if (saturate) return nullptr;
    if constexpr (kReal<From>) {
        switch (whole) {
            case Rounding::nearest:
                return convert<To, From, Rounding::nearest, false>;
            case Rounding::zero:
                return convert<To, From, Rounding::zero, false>;
            case Rounding::down:
                return convert<To, From, Rounding::down, false>;
            case Rounding::up:
                return convert<To, From, Rounding::up, false>;
            case Rounding::none:
                break;
        }
    }
    return convert<To, From, Rounding::none, false>;
}

void conversion(const Operation& o, FunctionRoom& room, Instruction& to) {
    const auto types = o.types();
    if (types.size() != 2) o.unknown("not in this form");
    if (types[0] == Type::f16x2) {
        if (!o.has("rn") || o.has("relu")) o.unknown("not in this form");
        to.run = o.has("satfinite") ? convert_two<true> : convert_two<false>;
        for (uint32_t i = 0; i < 3; ++i) room.put(to, i, o.operand(i), Type::f32);
        return;
    }
    if (o.has("rz") || o.has("rm") || o.has("rp") || o.has("satfinite") || o.has("ftz"))
        o.unknown("not in this form");
    const Rounding whole = o.has("rni")   ? Rounding::nearest
                           : o.has("rzi") ? Rounding::zero
                           : o.has("rmi") ? Rounding::down
                           : o.has("rpi") ? Rounding::up
                                          : Rounding::none;
    to.run = of_any(types[0], [&](auto target) -> Handler {
        return of_any(types[1], [&](auto source) -> Handler {
            return handler<decltype(target), decltype(source)>(whole, o.has("sat"));
        });
    });
    if (!to.run) o.unknown("not between these types");
    room.put(to, 0, o.operand(0), types[0]);
    room.put(to, 1, o.operand(1), types[1]);
}

}  // namespace

Builder convert_builder(std::string_view name) {
    return name == "cvt" ? conversion : nullptr;
}

}  // namespace granary::test::ptx

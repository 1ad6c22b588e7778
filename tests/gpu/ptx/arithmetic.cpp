// SPDX-License-Identifier: GPL-3.0-or-later
// Arithmetic of integers and of floating point in three widths.
#include <cfenv>
#include <cmath>

#include "tests/gpu/ptx/elementwise.h"
#include "tests/gpu/ptx/half.h"

namespace granary::test::ptx {
namespace {

__extension__ using Signed128 = __int128;
__extension__ using Unsigned128 = unsigned __int128;

struct Add {
    template <class T>
    static T of(T a, T b) {
        return static_cast<T>(wrap(a) + wrap(b));
    }
};
struct Subtract {
    template <class T>
    static T of(T a, T b) {
        return static_cast<T>(wrap(a) - wrap(b));
    }
};
struct Multiply {
    template <class T>
    static T of(T a, T b) {
        if constexpr (sizeof(T) == 2 && std::is_integral_v<T>)
            return static_cast<T>(static_cast<uint32_t>(wrap(a)) * wrap(b));
        else
            return static_cast<T>(wrap(a) * wrap(b));
    }
};
struct MultiplyAdd {
    template <class T>
    static T of(T a, T b, T c) {
        return Add::of(Multiply::of(a, b), c);
    }
};
struct MultiplyHigh {
    template <class T>
    static T of(T a, T b) {
        if constexpr (sizeof(T) == 8) {
            using Wide = std::conditional_t<std::is_signed_v<T>, Signed128, Unsigned128>;
            return static_cast<T>(static_cast<Wide>(a) * b >> 64);
        } else {
            using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
            return static_cast<T>(static_cast<Wide>(a) * b >> (8 * sizeof(T)));
        }
    }
};
struct Divide {
    template <class T>
    static T of(T a, T b) {
        if constexpr (std::is_integral_v<T>) {
            if (b == 0) return static_cast<T>(-1);
            if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Subtract::of(T{0}, a);
        }
        return static_cast<T>(a / b);
    }
};
struct Remainder {
    template <class T>
    static T of(T a, T b) {
        if (b == 0) return a;
        if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
        return static_cast<T>(a % b);
    }
};
// Of a number and none, the number; -0 is less than 0.
struct Least {
    template <class T>
    static T of(T a, T b) {
        if constexpr (std::is_floating_point_v<T>) {
            if (std::isnan(a)) return b;
            if (std::isnan(b)) return a;
            if (a == b) return std::signbit(a) ? a : b;
        }
        return a < b ? a : b;
    }
};
struct Most {
    template <class T>
    static T of(T a, T b) {
        if constexpr (std::is_floating_point_v<T>) {
            if (std::isnan(a)) return b;
            if (std::isnan(b)) return a;
            if (a == b) return std::signbit(a) ? b : a;
        }
        return a < b ? b : a;
    }
};
struct Negative {
    template <class T>
    static T of(T a) {
        if constexpr (std::is_floating_point_v<T>) return -a;
        return static_cast<T>(0 - wrap(a));
    }
};
struct Absolute {
    template <class T>
    static T of(T a) {
        if constexpr (std::is_floating_point_v<T>) return std::fabs(a);
        return a < 0 ? Negative::of(a) : a;
    }
};
struct Fma {
    static float of(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
    static double of(double a, double b, double c) { return __builtin_fma(a, b, c); }
};
struct Reciprocal {
    template <class T>
    static T of(T a) {
        return T{1} / a;
    }
};
struct Root {
    template <class T>
    static T of(T a) {
        return std::sqrt(a);
    }
};
struct ReciprocalRoot {
    static float of(float a) { return static_cast<float>(1 / std::sqrt(static_cast<double>(a))); }
};
struct PowerOfTwo {
    static float of(float a) { return std::exp2(a); }
};
struct PowerOfTwoFlushed {
    static float of(float a) {
        const auto flush = [](float x) {
            return std::fpclassify(x) == FP_SUBNORMAL ? x * 0.0f : x;
        };
        return flush(std::exp2(flush(a)));
    }
};
struct LogOfTwo {
    static float of(float a) { return std::log2(a); }
};
struct Sine {
    static float of(float a) { return std::sin(a); }
};
struct Cosine {
    static float of(float a) { return std::cos(a); }
};

// The other rounding modes: to minus infinity and to zero, of fma and add.
template <int kMode>
void fma_rounded(Warp& w, const Instruction& i) {
    std::fesetround(kMode);
    ternary<float, Fma>(w, i);
    std::fesetround(FE_TONEAREST);
}
struct AddCarefully {
    // Not to be moved across the change of mode.
    static float of(float a, float b) {
        volatile float x = a;
        volatile float y = b;
        return x + y;
    }
};
template <int kMode>
void add_rounded(Warp& w, const Instruction& i) {
    std::fesetround(kMode);
    binary<float, AddCarefully>(w, i);
    std::fesetround(FE_TONEAREST);
}

template <class From, class To, bool kAdds>
void multiply_wide(Warp& w, const Instruction& i) {
    auto* const d = lanes<To>(w, i.at[0]);
    const auto* const a = lanes<From>(w, i.at[1]);
    const auto* const b = lanes<From>(w, i.at[2]);
    const auto* const c = lanes<To>(w, i.at[3]);
    each_lane(w, [&](uint32_t l) {
        const To product = static_cast<To>(static_cast<To>(a[l].value) * b[l].value);
        d[l].value = kAdds ? Add::of(product, c[l].value) : product;
    });
}

template <class A, class B>
void dot_of_bytes(Warp& w, const Instruction& i) {
    auto* const d = lanes<uint32_t>(w, i.at[0]);
    const auto* const a = lanes<uint32_t>(w, i.at[1]);
    const auto* const b = lanes<uint32_t>(w, i.at[2]);
    const auto* const c = lanes<uint32_t>(w, i.at[3]);
    each_lane(w, [&](uint32_t l) {
        uint32_t sum = c[l].value;
        for (uint32_t k = 0; k < 4; ++k)
            sum += static_cast<uint32_t>(static_cast<A>(a[l].value >> (8 * k)) *
                                         static_cast<B>(b[l].value >> (8 * k)));
        d[l].value = sum;
    });
}

template <class Op>
Handler binary_of(Type type) {
    const auto pick = [](auto x) -> Handler { return binary<decltype(x), Op>; };
    if (const Handler found = of_integers(type, pick)) return found;
    return of_reals(type, pick);
}
template <class Op>
Handler signed_unary_of(Type type) {
    switch (type) {
        case Type::s16:
            return unary<int16_t, Op>;
        case Type::s32:
            return unary<int32_t, Op>;
        case Type::s64:
            return unary<int64_t, Op>;
        default:
            return of_reals(type, [](auto x) -> Handler { return unary<decltype(x), Op>; });
    }
}

void add_subtract_multiply(const Operation& o, FunctionRoom& room, Instruction& to) {
    const Type type = o.type();
    const std::string_view name = o.parts[0];
    if (type == Type::f16 || type == Type::f16x2) {
        to.run = half_handler(name, type == Type::f16x2);
    } else if (o.has("wide")) {
        if (type == Type::u16) to.run = multiply_wide<uint16_t, uint32_t, false>;
        if (type == Type::s16) to.run = multiply_wide<int16_t, int32_t, false>;
        if (type == Type::u32) to.run = multiply_wide<uint32_t, uint64_t, false>;
        if (type == Type::s32) to.run = multiply_wide<int32_t, int64_t, false>;
        for (uint32_t i = 0; i < 3; ++i) room.put(to, i, o.operand(i), i == 0 ? Type::u64 : type);
        return;
    } else if (o.has("hi")) {
        to.run = integer_binary_of<MultiplyHigh>(type);
    } else if (o.has("rz") && name == "add" && type == Type::f32) {
        to.run = add_rounded<FE_TOWARDZERO>;
    } else if (o.has("sat") || o.has("rm") || o.has("rp") || o.has("rz") || o.has("cc")) {
        o.unknown("not in this form");
    } else {
        to.run = name == "add"   ? binary_of<Add>(type)
                 : name == "sub" ? binary_of<Subtract>(type)
                                 : binary_of<Multiply>(type);
    }
    put_all(o, room, to, type);
}

void multiply_add(const Operation& o, FunctionRoom& room, Instruction& to) {
    const Type type = o.type();
    if (o.has("wide")) {
        if (type == Type::u16) to.run = multiply_wide<uint16_t, uint32_t, true>;
        if (type == Type::s16) to.run = multiply_wide<int16_t, int32_t, true>;
        if (type == Type::u32) to.run = multiply_wide<uint32_t, uint64_t, true>;
        if (type == Type::s32) to.run = multiply_wide<int32_t, int64_t, true>;
        for (uint32_t i = 0; i < 4; ++i)
            room.put(to, i, o.operand(i),
                     i != 0 && i != 3      ? type
                     : bytes_of(type) == 4 ? Type::u64
                                           : Type::u32);
        return;
    }
    if (!o.has("lo")) o.unknown("not in this form");
    to.run = of_integers(type, [](auto x) -> Handler { return ternary<decltype(x), MultiplyAdd>; });
    put_all(o, room, to, type);
}

void fused(const Operation& o, FunctionRoom& room, Instruction& to) {
    const Type type = o.type();
    if (type == Type::f16 || type == Type::f16x2)
        to.run = half_handler("fma", type == Type::f16x2);
    else if (type == Type::f64)
        to.run = ternary<double, Fma>;
    else
        to.run = o.has("rn")   ? ternary<float, Fma>
                 : o.has("rm") ? fma_rounded<FE_DOWNWARD>
                 : o.has("rz") ? fma_rounded<FE_TOWARDZERO>
                               : fma_rounded<FE_UPWARD>;
    put_all(o, room, to, type);
}

void least_most(const Operation& o, FunctionRoom& room, Instruction& to) {
    const Type type = o.type();
    const bool least = o.parts[0] == "min";
    if (o.has("NaN") || o.has("xorsign")) o.unknown("not in this form");
    if (type == Type::f16 || type == Type::f16x2)
        to.run = half_handler(o.parts[0], type == Type::f16x2);
    else
        to.run = least ? binary_of<Least>(type) : binary_of<Most>(type);
    put_all(o, room, to, type);
}

void divide(const Operation& o, FunctionRoom& room, Instruction& to) {
    to.run =
        o.parts[0] == "rem" ? integer_binary_of<Remainder>(o.type()) : binary_of<Divide>(o.type());
    put_all(o, room, to, o.type());
}

void of_one(const Operation& o, FunctionRoom& room, Instruction& to) {
    const Type type = o.type();
    const std::string_view name = o.parts[0];
    if (name == "neg" && (type == Type::f16 || type == Type::f16x2))
        to.run = half_handler(name, type == Type::f16x2);
    else if (name == "neg")
        to.run = signed_unary_of<Negative>(type);
    else if (name == "abs")
        to.run = signed_unary_of<Absolute>(type);
    else if (name == "rcp")
        to.run = of_reals(type, [](auto x) -> Handler { return unary<decltype(x), Reciprocal>; });
    else if (name == "sqrt")
        to.run = of_reals(type, [](auto x) -> Handler { return unary<decltype(x), Root>; });
    else if (type == Type::f32)
        to.run = name == "rsqrt" ? unary<float, ReciprocalRoot>
                 : name == "ex2"
                     ? (o.has("ftz") ? unary<float, PowerOfTwoFlushed> : unary<float, PowerOfTwo>)
                 : name == "lg2" ? unary<float, LogOfTwo>
                 : name == "sin" ? unary<float, Sine>
                                 : unary<float, Cosine>;
    put_all(o, room, to, type);
}

void dots(const Operation& o, FunctionRoom& room, Instruction& to) {
    const auto types = o.types();
    const bool a = types.at(0) == Type::s32, b = types.at(1) == Type::s32;
    to.run = a ? (b ? dot_of_bytes<int8_t, int8_t> : dot_of_bytes<int8_t, uint8_t>)
               : (b ? dot_of_bytes<uint8_t, int8_t> : dot_of_bytes<uint8_t, uint8_t>);
    put_all(o, room, to, Type::u32);
}

}  // namespace

Builder arithmetic_builder(std::string_view name) {
    static const std::map<std::string_view, Builder> builders{{"add", add_subtract_multiply},
                                                              {"sub", add_subtract_multiply},
                                                              {"mul", add_subtract_multiply},
                                                              {"mad", multiply_add},
                                                              {"fma", fused},
                                                              {"min", least_most},
                                                              {"max", least_most},
                                                              {"div", divide},
                                                              {"rem", divide},
                                                              {"neg", of_one},
                                                              {"abs", of_one},
                                                              {"rcp", of_one},
                                                              {"sqrt", of_one},
                                                              {"rsqrt", of_one},
                                                              {"ex2", of_one},
                                                              {"lg2", of_one},
                                                              {"sin", of_one},
                                                              {"cos", of_one},
                                                              {"dp4a", dots}};
    return find_builder(builders, name);
}

}  // namespace granary::test::ptx

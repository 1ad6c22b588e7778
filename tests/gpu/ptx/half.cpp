// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/gpu/ptx/half.h"

namespace granary::test::ptx {
namespace {

// Of two halves sum, difference and product are exact in a float but for its rounding, which is
// finer by more than a half's bits: rounding twice is rounding once.
struct Add {
    static uint16_t of(float a, float b, float) { return to_half(a + b); }
};
struct Subtract {
    static uint16_t of(float a, float b, float) { return to_half(a - b); }
};
struct Multiply {
    static uint16_t of(float a, float b, float) { return to_half(a * b); }
};
struct MultiplyAdd {
    static uint16_t of(float a, float b, float c) {
        return to_half(static_cast<double>(a) * static_cast<double>(b) + static_cast<double>(c));
    }
};
struct Least {
    static uint16_t of(float a, float b, float) {
        if (std::isnan(a)) return to_half(b);
        if (std::isnan(b)) return to_half(a);
        return to_half(a < b || (a == b && std::signbit(a)) ? a : b);
    }
};
struct Most {
    static uint16_t of(float a, float b, float) {
        if (std::isnan(a)) return to_half(b);
        if (std::isnan(b)) return to_half(a);
        return to_half(a > b || (a == b && std::signbit(b)) ? a : b);
    }
};
struct Negative {
    static uint16_t of(float a, float, float) { return to_half(-a); }
};

template <class Op, uint32_t kOperands, uint32_t kHalves>
void halves(Warp& w, const Instruction& i) {
    auto* const d = lanes<uint32_t>(w, i.at[0]);
    const auto* const a = lanes<uint32_t>(w, i.at[1]);
    const auto* const b = lanes<uint32_t>(w, i.at[kOperands > 1 ? 2 : 1]);
    const auto* const c = lanes<uint32_t>(w, i.at[kOperands > 2 ? 3 : 1]);
    each_lane(w, [&](uint32_t l) {
        uint32_t result = 0;
        for (uint32_t h = 0; h < kHalves; ++h) {
            const auto part = [&](uint32_t word) {
                return from_half(static_cast<uint16_t>(word >> (16 * h)));
            };
            result |= uint32_t{Op::of(part(a[l].value), part(b[l].value), part(c[l].value))}
                      << (16 * h);
        }
        d[l].value = result;
    });
}

template <class Op, uint32_t kOperands>
Handler of_one_or_two(bool two) {
    return two ? halves<Op, kOperands, 2> : halves<Op, kOperands, 1>;
}

}  // namespace

Handler half_handler(std::string_view name, bool two) {
    if (name == "add") return of_one_or_two<Add, 2>(two);
    if (name == "sub") return of_one_or_two<Subtract, 2>(two);
    if (name == "mul") return of_one_or_two<Multiply, 2>(two);
    if (name == "fma") return of_one_or_two<MultiplyAdd, 3>(two);
    if (name == "min") return of_one_or_two<Least, 2>(two);
    if (name == "max") return of_one_or_two<Most, 2>(two);
    if (name == "neg") return of_one_or_two<Negative, 1>(two);
    throw Fault("not known of halves: " + std::string(name));
}

}  // namespace granary::test::ptx

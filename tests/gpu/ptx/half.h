// SPDX-License-Identifier: GPL-3.0-or-later
// 16-bit floating point, by the processor's own conversions (F16C).
#pragma once

#include <immintrin.h>

#include <bit>
#include <cmath>

#include "tests/gpu/ptx/program.h"

namespace granary::test::ptx {

inline float from_half(uint16_t half) {
    return _cvtsh_ss(half);
}
inline uint16_t to_half(float x) {
    return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
}
// Rounded once: a float between two halves keeps on which side of the middle the value lies.
inline uint16_t to_half(double x) {
    const float nearest = static_cast<float>(x);
    if (static_cast<double>(nearest) == x || !std::isfinite(nearest)) return to_half(nearest);
    const bool away = std::fabs(static_cast<double>(nearest)) > std::fabs(x);
    const uint32_t toward_zero = std::bit_cast<uint32_t>(nearest) - (away ? 1 : 0);
    return to_half(std::bit_cast<float>(toward_zero | 1));
}

// add, sub, mul, fma, min, max and neg of one half or of two in a register. Errors: Fault.
Handler half_handler(std::string_view name, bool two);

}  // namespace granary::test::ptx

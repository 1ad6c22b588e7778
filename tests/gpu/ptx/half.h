// SPDX-License-Identifier: GPL-3.0-or-later
// 16-bit floating point, by the processor's own conversions (F16C).
#pragma once

#include <immintrin.h>

#include <bit>
#include <cmath>

#include "tests/gpu/ptx/warp.h"

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

// Of matrix fragments, where four lanes hold eight halves of a row of A, or of a column of B: those
// of lanes 4 * group and on.
inline __m256 eight_halves(const Warp& w, uint32_t at, uint32_t group) {
    const auto* const words = lanes<uint32_t>(w, at) + 4 * group;
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(words)));
}

// add, sub, mul, fma, min, max and neg of one half or of two in a register. Errors: Fault.
Handler half_handler(std::string_view name, bool two);

}  // namespace granary::test::ptx

// SPDX-License-Identifier: GPL-3.0-or-later
// 16-bit floats, one at a time: weights' scales, and targets without conversion instructions.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace granary::gpu::host {

// IEEE 754 binary16 to binary32, exact. Subnormals are scaled by a multiplication, so that no
// loop is needed: 2^112 moves the exponent bias from 15 to 127.
inline float half_to_float(uint16_t half) {
    const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fff) << 13;
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
    if (magnitude >= 0x7c00u << 13)  // infinity, NaN
        return std::bit_cast<float>(sign | magnitude | 0x7f800000u);
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
}

// To the nearest binary16, ties to even; too large becomes infinity.
inline uint16_t float_to_half(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | 0x7e00;   // NaN
    if (magnitude >= 0x477ff000u) return sign | 0x7c00;  // 65520 and above round to infinity
    if (magnitude < 0x38800000u) {                       // subnormal: let the adder round
        const float shifted = std::bit_cast<float>(magnitude) + 0x1p-1f;
        return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
    }
    const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1) - (112u << 23);
    return static_cast<uint16_t>(sign | rounded >> 13);
}

inline float bfloat_to_float(uint16_t value) {
    return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

// Unaligned little-endian reads: block formats align nothing.
template <class T>
inline T load(const void* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}
inline float load_half(const void* from) {
    return half_to_float(load<uint16_t>(from));
}

}  // namespace granary::gpu::host

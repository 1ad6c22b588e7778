// SPDX-License-Identifier: GPL-3.0-or-later
// The K formats: blocks of 256 weights whose groups have scales of their own.
// Layouts: ggml's block structures (ggml-common.h of llama.cpp), as files hold them.
#include "gpu/host/decode.h"
#include "gpu/host/half.h"

namespace granary::gpu::host {
namespace {

inline uint32_t at(const std::byte* from, size_t index) {
    return static_cast<uint32_t>(from[index]);
}

// Eight pairs of 6-bit scale and minimum in 12 bytes: pairs 0 to 3 in the low six bits of bytes
// 0-3 and 4-7; pairs 4 to 7 have their low four bits in bytes 8-11 (scale low, minimum high) and
// their upper two in the top bits of bytes 0-3 and 4-7.
struct Pair {
    uint32_t scale, minimum;
};
Pair six_bit_pair(const std::byte* from, size_t index) {
    if (index < 4) return {at(from, index) & 63, at(from, index + 4) & 63};
    return {(at(from, index + 4) & 15) | (at(from, index - 4) >> 6) << 4,
            at(from, index + 4) >> 4 | (at(from, index) >> 6) << 4};
}

void set_pair(const std::byte* block, size_t group, Group* out) {
    const Pair pair = six_bit_pair(block + 4, group);
    out->scale[0] = out->scale[1] = load_half(block) * static_cast<float>(pair.scale);
    out->minimum[0] = out->minimum[1] = load_half(block + 2) * static_cast<float>(pair.minimum);
}

// 32 bytes hold the groups 2j (low nibbles) and 2j + 1 (high nibbles).
void nibbles(const std::byte* from, size_t group, uint8_t* code) {
    const std::byte* bytes = from + group / 2 * 32;
    const int shift = group % 2 ? 4 : 0;
    for (uint32_t i = 0; i < kGroup; ++i)
        code[i] = static_cast<uint8_t>(at(bytes, i) >> shift & 15);
}

void unpack_q4_k(const std::byte* row, size_t index, Group* out) {
    const std::byte* block = row + index / 8 * 144;
    nibbles(block + 16, index % 8, out->code);
    set_pair(block, index % 8, out);
}

void unpack_q5_k(const std::byte* row, size_t index, Group* out) {
    const std::byte* block = row + index / 8 * 176;
    const size_t group = index % 8;  // its fifth bits are bit `group` of the 32 bytes
    nibbles(block + 48, group, out->code);
    for (uint32_t i = 0; i < kGroup; ++i)
        out->code[i] |= static_cast<uint8_t>((at(block + 16, i) >> group & 1) << 4);
    set_pair(block, group, out);
}

void unpack_q6_k(const std::byte* row, size_t index, Group* out) {
    const std::byte* block = row + index / 8 * 210;
    // Each 128 weights: 64 bytes of low nibbles (groups 0, 1 low; 2, 3 high) and 32 bytes with
    // two upper bits for each of the four groups.
    const size_t half = index % 8 / 4, group = index % 4;
    const std::byte* low = block + half * 64 + group % 2 * 32;
    const std::byte* high = block + 128 + half * 32;
    for (uint32_t i = 0; i < kGroup; ++i)
        out->code[i] = static_cast<uint8_t>((at(low, i) >> (group / 2 * 4) & 15) |
                                            (at(high, i) >> (2 * group) & 3) << 4);
    const float d = load_half(block + 208);
    for (size_t i = 0; i < 2; ++i) {
        const auto scale = static_cast<int8_t>(block[192 + index % 8 * 2 + i]);
        out->scale[i] = d * static_cast<float>(scale);
    }
}

// 128 weights share 32 bytes: group j of them is bits 2j, 2j + 1.
void two_bits(const std::byte* from, size_t group, uint8_t* code) {
    const std::byte* bytes = from + group / 4 * 32;
    for (uint32_t i = 0; i < kGroup; ++i)
        code[i] = static_cast<uint8_t>(at(bytes, i) >> (2 * (group % 4)) & 3);
}

void unpack_q2_k(const std::byte* row, size_t index, Group* out) {
    const std::byte* block = row + index / 8 * 84;
    const size_t group = index % 8;
    two_bits(block + 16, group, out->code);
    const float d = load_half(block + 80), dmin = load_half(block + 82);
    for (size_t i = 0; i < 2; ++i) {
        const uint32_t both = at(block, 2 * group + i);
        out->scale[i] = d * static_cast<float>(both & 15);
        out->minimum[i] = dmin * static_cast<float>(both >> 4);
    }
}

// Sixteen 6-bit scales in 12 bytes: low nibbles of bytes 0-7, their high nibbles, and two upper
// bits each in bytes 8-11 (scales 0-3 in bits 0-1, 4-7 in bits 2-3, and so on).
void unpack_q3_k(const std::byte* row, size_t index, Group* out) {
    const std::byte* block = row + index / 8 * 110;
    const size_t group = index % 8;
    two_bits(block + 32, group, out->code);
    for (uint32_t i = 0; i < kGroup; ++i)
        out->code[i] |= static_cast<uint8_t>((at(block, i) >> group & 1) << 2);
    const float d = load_half(block + 108);
    for (size_t i = 0; i < 2; ++i) {
        const size_t number = 2 * group + i;
        const uint32_t low = at(block + 96, number % 8) >> (number / 8 * 4) & 15;
        const uint32_t high = at(block + 104, number % 4) >> (number / 4 * 2) & 3;
        out->scale[i] = d * static_cast<float>(static_cast<int>(low | high << 4) - 32);
    }
}

constexpr BlockFormat kQ2K{unpack_q2_k, 0, true, true, 3};
constexpr BlockFormat kQ3K{unpack_q3_k, 2, false, true, 7};
constexpr BlockFormat kQ4K{unpack_q4_k, 0, true, false, 15};
constexpr BlockFormat kQ5K{unpack_q5_k, 0, true, false, 31};
constexpr BlockFormat kQ6K{unpack_q6_k, 5, false, true, 63};

}  // namespace

const BlockFormat* k_format(WeightType type) {
    switch (type) {
        case WeightType::q2_k:
            return &kQ2K;
        case WeightType::q3_k:
            return &kQ3K;
        case WeightType::q4_k:
            return &kQ4K;
        case WeightType::q5_k:
            return &kQ5K;
        case WeightType::q6_k:
            return &kQ6K;
        default:
            return nullptr;
    }
}

}  // namespace granary::gpu::host

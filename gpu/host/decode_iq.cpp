// SPDX-License-Identifier: GPL-3.0-or-later
// The IQ formats: codes that stand for entries of tables (iq_grids.h).
// Layouts: ggml's block structures (ggml-common.h of llama.cpp), as files hold them.
#include <bit>

#include "gpu/host/decode.h"
#include "gpu/host/half.h"
#include "gpu/host/iq_grids.h"

namespace granary::gpu::host {
namespace {

inline uint32_t at(const std::byte* from, size_t index) {
    return static_cast<uint32_t>(from[index]);
}

void set_scale(Group* out, float scale) {
    out->scale[0] = out->scale[1] = scale;
}

// ---- IQ4: sixteen values ------------------------------------------------------------------

void nonlinear(const std::byte* nibbles, uint8_t* code) {
    for (size_t i = 0; i < 16; ++i) {
        code[i] = kNonlinearCodes[at(nibbles, i) & 15];
        code[16 + i] = kNonlinearCodes[at(nibbles, i) >> 4];
    }
}

void unpack_iq4_nl(const std::byte* row, size_t index, Group* out) {
    const std::byte* block = row + index * 18;
    nonlinear(block + 2, out->code);
    set_scale(out, load_half(block));
}

// A group's 6-bit scale: four low bits in bytes 4-7, two high ones in the 16 bits before them.
void unpack_iq4_xs(const std::byte* row, size_t index, Group* out) {
    const std::byte* block = row + index / 8 * 136;
    const size_t group = index % 8;
    nonlinear(block + 8 + group * 16, out->code);
    const uint32_t low = at(block + 4, group / 2) >> (group % 2 * 4) & 15;
    const uint32_t high = load<uint16_t>(block + 2) >> (2 * group) & 3;
    set_scale(out, load_half(block) * static_cast<float>(static_cast<int>(low | high << 4) - 32));
}

// ---- IQ2 and IQ3: magnitudes from a grid, signs beside them ----------------------------------

// Seven bits of signs; the eighth makes the number of minuses even.
uint32_t eight_signs(uint32_t seven) {
    seven &= 127;
    return seven | static_cast<uint32_t>(std::popcount(seven) & 1) << 7;
}

// Eight weights of an IQ2 grid; `signs` has a bit for each.
void grid_of_8(const uint64_t* grid, uint32_t index, uint32_t signs, uint8_t* code) {
    static constexpr int kValues[4] = {8, 25, 43, 0};
    const uint32_t entry = grid_entry(grid, index);
    for (uint32_t i = 0; i < 8; ++i) {
        const int value = kValues[entry >> (2 * i) & 3];
        code[i] = static_cast<uint8_t>(64 + (signs >> i & 1 ? -value : value));
    }
}

// Four weights of an IQ3 grid.
void grid_of_4(const uint64_t* grid, const uint8_t* values, int offset, uint32_t index,
               uint32_t signs, uint8_t* code) {
    const uint32_t entry = grid_entry(grid, index);
    for (uint32_t i = 0; i < 4; ++i) {
        const int value = values[entry >> (3 * i) & 7];
        code[i] = static_cast<uint8_t>(offset + (signs >> i & 1 ? -value : value));
    }
}

float quarter_scale(float d, uint32_t nibble) {
    return d * (0.5f + static_cast<float>(nibble)) * 0.25f;
}

// 8 bytes a group: four grid indices, then four times seven signs and a 4-bit scale.
void unpack_iq2_xxs(const std::byte* row, size_t index, Group* out) {
    const std::byte* block = row + index / 8 * 66;
    const std::byte* codes = block + 2 + index % 8 * 8;
    const auto signs = load<uint32_t>(codes + 4);
    for (uint32_t l = 0; l < 4; ++l)
        grid_of_8(kIq2Xxs, at(codes, l), eight_signs(signs >> (7 * l)), out->code + 8 * l);
    set_scale(out, quarter_scale(load_half(block), signs >> 28));
}

// 16 bits for each eight weights: nine of grid index, seven of signs. Then scales of 4 bits.
void unpack_iq2_xs(const std::byte* row, size_t index, Group* out) {
    const std::byte* block = row + index / 8 * 74;
    const size_t group = index % 8;
    for (uint32_t l = 0; l < 4; ++l) {
        const uint32_t code = load<uint16_t>(block + 2 + group * 8 + 2 * l);
        grid_of_8(kIq2Xs, code & 511, eight_signs(code >> 9), out->code + 8 * l);
    }
    const float d = load_half(block);
    out->scale[0] = quarter_scale(d, at(block + 66, group) & 15);
    out->scale[1] = quarter_scale(d, at(block + 66, group) >> 4);
}

// Planes: low bits of the grid indices, signs, two high bits of the indices, scales.
void unpack_iq2_s(const std::byte* row, size_t index, Group* out) {
    const std::byte* block = row + index / 8 * 82;
    const size_t group = index % 8;
    for (uint32_t l = 0; l < 4; ++l) {
        const uint32_t high = at(block + 66, group) >> (2 * l) & 3;
        grid_of_8(kIq2S, at(block + 2, group * 4 + l) | high << 8, at(block + 34, group * 4 + l),
                  out->code + 8 * l);
    }
    const float d = load_half(block);
    out->scale[0] = quarter_scale(d, at(block + 74, group) & 15);
    out->scale[1] = quarter_scale(d, at(block + 74, group) >> 4);
}

// Eight grid indices a group, then for each group four times seven signs and a 4-bit scale.
void unpack_iq3_xxs(const std::byte* row, size_t index, Group* out) {
    static constexpr uint8_t kValues[8] = {4, 12, 20, 28, 36, 44, 52, 62};
    const std::byte* block = row + index / 8 * 98;
    const size_t group = index % 8;
    const auto all = load<uint32_t>(block + 66 + group * 4);
    for (uint32_t l = 0; l < 8; ++l) {
        const uint32_t signs = eight_signs(all >> (7 * (l / 2))) >> (l % 2 * 4);
        grid_of_4(kIq3Xxs, kValues, 64, at(block + 2, group * 8 + l), signs, out->code + 4 * l);
    }
    set_scale(out, load_half(block) * (0.5f + static_cast<float>(all >> 28)) * 0.5f);
}

// Planes: low bits of the grid indices, their ninth bits, signs, scales.
void unpack_iq3_s(const std::byte* row, size_t index, Group* out) {
    static constexpr uint8_t kValues[8] = {1, 3, 5, 7, 9, 11, 13, 15};
    const std::byte* block = row + index / 8 * 110;
    const size_t group = index % 8;
    for (uint32_t l = 0; l < 8; ++l) {
        const uint32_t high = at(block + 66, group) >> l & 1;
        const uint32_t signs = at(block + 74, group * 4 + l / 2) >> (l % 2 * 4);
        grid_of_4(kIq3S, kValues, 16, at(block + 2, group * 8 + l) | high << 8, signs,
                  out->code + 4 * l);
    }
    const uint32_t scale = at(block + 106, group / 2) >> (group % 2 * 4) & 15;
    set_scale(out, load_half(block) * static_cast<float>(1 + 2 * scale));
}

// ---- IQ1: -1, 0 or 1, shifted by an eighth -----------------------------------------------------

// Eight weights as eighths: 8 * (-1, 0, 1) + 1 or - 1.
void eighths(uint32_t index, bool down, uint8_t* code) {
    const uint32_t entry = grid_entry(kIq1, index);
    for (uint32_t i = 0; i < 8; ++i) {
        const int value = static_cast<int>(entry >> (2 * i) & 3) - 1;
        code[i] = static_cast<uint8_t>(16 + 8 * value + (down ? -1 : 1));
    }
}

float eighth_scale(float d, uint32_t three) {
    return d * static_cast<float>(2 * (three & 7) + 1) * 0.125f;
}

// Low bits of the grid indices, then 16 bits a group: four times three high bits, a scale of
// three and the shift's sign.
void unpack_iq1_s(const std::byte* row, size_t index, Group* out) {
    const std::byte* block = row + index / 8 * 50;
    const size_t group = index % 8;
    const uint32_t high = load<uint16_t>(block + 34 + group * 2);
    for (uint32_t l = 0; l < 4; ++l)
        eighths(at(block + 2, group * 4 + l) | (high >> (3 * l) & 7) << 8, high >> 15,
                out->code + 8 * l);
    set_scale(out, eighth_scale(load_half(block), high >> 12));
}

// Low bits of the grid indices; for each eight weights four bits (three high bits, the shift's
// sign); then sixteen 3-bit scales in four words, whose top four bits are the block's 16-bit scale.
void unpack_iq1_m(const std::byte* row, size_t index, Group* out) {
    const std::byte* block = row + index / 8 * 56;
    const size_t group = index % 8;
    for (uint32_t l = 0; l < 4; ++l) {
        const uint32_t high = at(block + 32, group * 2 + l / 2) >> (l % 2 * 4);
        eighths(at(block, group * 4 + l) | (high & 7) << 8, high & 8, out->code + 8 * l);
    }
    uint32_t d = 0;
    for (uint32_t i = 0; i < 4; ++i)
        d |= static_cast<uint32_t>(load<uint16_t>(block + 48 + 2 * i) >> 12) << (4 * i);
    const uint32_t scales = load<uint16_t>(block + 48 + group / 2 * 2) >> (group % 2 * 6);
    for (uint32_t i = 0; i < 2; ++i)
        out->scale[i] = eighth_scale(half_to_float(static_cast<uint16_t>(d)), scales >> (3 * i));
}

constexpr BlockFormat kIq4NlFormat{unpack_iq4_nl, 7, false, false, 255};
constexpr BlockFormat kIq4XsFormat{unpack_iq4_xs, 7, false, false, 255};
constexpr BlockFormat kIq2XxsFormat{unpack_iq2_xxs, 6, false, false, 127};
constexpr BlockFormat kIq2XsFormat{unpack_iq2_xs, 6, false, true, 127};
constexpr BlockFormat kIq2SFormat{unpack_iq2_s, 6, false, true, 127};
constexpr BlockFormat kIq3XxsFormat{unpack_iq3_xxs, 6, false, false, 127};
constexpr BlockFormat kIq3SFormat{unpack_iq3_s, 4, false, false, 31};
constexpr BlockFormat kIq1SFormat{unpack_iq1_s, 4, false, false, 31};
constexpr BlockFormat kIq1MFormat{unpack_iq1_m, 4, false, true, 31};

}  // namespace

const BlockFormat* iq_format(WeightType type) {
    switch (type) {
        case WeightType::iq4_nl:
            return &kIq4NlFormat;
        case WeightType::iq4_xs:
            return &kIq4XsFormat;
        case WeightType::iq2_xxs:
            return &kIq2XxsFormat;
        case WeightType::iq2_xs:
            return &kIq2XsFormat;
        case WeightType::iq2_s:
            return &kIq2SFormat;
        case WeightType::iq3_xxs:
            return &kIq3XxsFormat;
        case WeightType::iq3_s:
            return &kIq3SFormat;
        case WeightType::iq1_s:
            return &kIq1SFormat;
        case WeightType::iq1_m:
            return &kIq1MFormat;
        default:
            return nullptr;
    }
}

}  // namespace granary::gpu::host

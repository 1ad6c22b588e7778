// SPDX-License-Identifier: GPL-3.0-or-later
// Exact decoding of rows, and the formats whose blocks have 32 weights and one scale.
// Layouts: ggml's block structures (ggml-common.h of llama.cpp), as files hold them.
#include "gpu/host/decode.h"

#include <cassert>
#include <cstring>

#include "gpu/host/half.h"
#include "gpu/host/rows.h"

namespace granary::gpu::host {
namespace {

// 16 bytes of nibbles: the low ones are weights 0 to 15, the high ones 16 to 31.
void split_nibbles(const std::byte* from, uint8_t* code) {
    for (int i = 0; i < 16; ++i) {
        const auto byte = static_cast<uint8_t>(from[i]);
        code[i] = byte & 15;
        code[16 + i] = byte >> 4;
    }
}

void add_fifth_bits(const std::byte* from, uint8_t* code) {
    const auto bits = load<uint32_t>(from);
    for (int i = 0; i < 32; ++i) code[i] |= static_cast<uint8_t>((bits >> i & 1) << 4);
}

void set_scale(Group* out, float scale, float minimum = 0) {
    out->scale[0] = out->scale[1] = scale;
    out->minimum[0] = out->minimum[1] = minimum;
}

void unpack_q4_0(const std::byte* row, size_t index, Group* out) {
    const std::byte* block = row + index * 18;
    split_nibbles(block + 2, out->code);
    set_scale(out, load_half(block));
}

void unpack_q4_1(const std::byte* row, size_t index, Group* out) {
    const std::byte* block = row + index * 20;
    split_nibbles(block + 4, out->code);
    set_scale(out, load_half(block), -load_half(block + 2));
}

void unpack_q5_0(const std::byte* row, size_t index, Group* out) {
    const std::byte* block = row + index * 22;
    split_nibbles(block + 6, out->code);
    add_fifth_bits(block + 2, out->code);
    set_scale(out, load_half(block));
}

void unpack_q5_1(const std::byte* row, size_t index, Group* out) {
    const std::byte* block = row + index * 24;
    split_nibbles(block + 8, out->code);
    add_fifth_bits(block + 4, out->code);
    set_scale(out, load_half(block), -load_half(block + 2));
}

void unpack_q8_0(const std::byte* row, size_t index, Group* out) {
    const std::byte* block = row + index * 34;
    for (uint32_t i = 0; i < kGroup; ++i)
        out->code[i] = static_cast<uint8_t>(block[2 + i]) ^ 0x80;  // + 128
    set_scale(out, load_half(block));
}

// Four-bit floats (sign, two exponent bits, one of mantissa), doubled to be whole, plus 16; the
// block's scale is 2^(e - 127), halved. OCP Microscaling Formats 1.0, section 5.
void unpack_mxfp4(const std::byte* row, size_t index, Group* out) {
    const std::byte* block = row + index * 17;
    split_nibbles(block + 1, out->code);
    for (uint8_t& code : out->code) code = kMxfp4Codes[code];
    set_scale(out, mxfp4_scale(block[0]));
}

void unpack_tq2_0(const std::byte* row, size_t index, Group* out) {
    const std::byte* block = row + index / 8 * 66;
    const size_t group = index % 8;  // byte j of each 32 holds weights j, 32 + j, 64 + j, 96 + j
    const std::byte* bytes = block + group / 4 * 32;
    for (uint32_t i = 0; i < kGroup; ++i)
        out->code[i] = static_cast<uint8_t>(bytes[i]) >> (2 * (group % 4)) & 3;
    set_scale(out, load_half(block + 64));
}

constexpr BlockFormat kQ4_0{unpack_q4_0, 3, false, false, 15};
constexpr BlockFormat kQ4_1{unpack_q4_1, 0, true, false, 15};
constexpr BlockFormat kQ5_0{unpack_q5_0, 4, false, false, 31};
constexpr BlockFormat kQ5_1{unpack_q5_1, 0, true, false, 31};
constexpr BlockFormat kQ8_0{unpack_q8_0, 7, false, false, 255};
constexpr BlockFormat kMxfp4{unpack_mxfp4, 4, false, false, 28};
constexpr BlockFormat kTq2_0{unpack_tq2_0, 0, false, false, 3};

void decode_group(const BlockFormat& format, const Group& group, float* out) {
    if (format.has_minimum) {
        for (uint32_t i = 0; i < kGroup; ++i)
            out[i] =
                group.scale[i / 16] * static_cast<float>(group.code[i]) - group.minimum[i / 16];
    } else {
        const int offset = 1 << format.offset_bits;
        for (uint32_t i = 0; i < kGroup; ++i)
            out[i] = group.scale[i / 16] * static_cast<float>(group.code[i] - offset);
    }
}

}  // namespace

const BlockFormat* simple_format(WeightType type) {
    switch (type) {
        case WeightType::q4_0:
            return &kQ4_0;
        case WeightType::q4_1:
            return &kQ4_1;
        case WeightType::q5_0:
            return &kQ5_0;
        case WeightType::q5_1:
            return &kQ5_1;
        case WeightType::q8_0:
            return &kQ8_0;
        case WeightType::mxfp4:
            return &kMxfp4;
        case WeightType::tq2_0:
            return &kTq2_0;
        default:
            return nullptr;
    }
}

const BlockFormat* block_format(WeightType type) {
    if (const BlockFormat* format = simple_format(type)) return format;
    if (const BlockFormat* format = k_format(type)) return format;
    return iq_format(type);
}

}  // namespace granary::gpu::host

namespace granary::gpu {

void decode_row(WeightType type, const std::byte* row, float* out, size_t cols) {
    using namespace host;
    switch (type) {
        case WeightType::f32:
            std::memcpy(out, row, cols * sizeof(float));
            return;
        case WeightType::f16:
            from_half(reinterpret_cast<const uint16_t*>(row), cols, out);
            return;
        case WeightType::bf16:
            from_bfloat(reinterpret_cast<const uint16_t*>(row), cols, out);
            return;
        default:
            break;
    }
    const BlockFormat* format = block_format(type);
    assert(format && cols % kGroup == 0);
    Group group;
    for (size_t index = 0; index < cols / kGroup; ++index) {
        format->unpack(row, index, &group);
        decode_group(*format, group, out + index * kGroup);
    }
}

}  // namespace granary::gpu

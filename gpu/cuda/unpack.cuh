// SPDX-License-Identifier: GPL-3.0-or-later
// Exact decoding of every weight type, eight weights at a time: what gpu/host/decode*.cpp does, to
// the same bits. Blocks may lie in shared or in global memory, at any address their format allows.
//
// The eight weights of an octet share a scale in every format:
//   weight[i] = scale * (code[i] - kOffset) - minimum
// Layouts: ggml's block structures (ggml-common.h of llama.cpp), as files hold them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "gpu/weight_type.h"

namespace granary::gpu::cuda {

namespace grids {
#define GRANARY_GRID static __device__ const
#include "gpu/iq_grid_values.h"
#undef GRANARY_GRID
}  // namespace grids

struct Octet {
    uint32_t code[2];  // eight bytes
    float scale, minimum;
};

namespace unpack {

using Bytes = const std::byte*;

__device__ __forceinline__ uint32_t byte_at(Bytes from, uint32_t index = 0) {
    return static_cast<uint32_t>(from[index]);
}
__device__ __forceinline__ uint32_t pair_at(Bytes from) {  // at an even address
    return *reinterpret_cast<const uint16_t*>(from);
}
__device__ __forceinline__ uint32_t word_at(Bytes from) {  // at an even address
    return pair_at(from) | pair_at(from + 2) << 16;
}
__device__ __forceinline__ float half_at(Bytes from) {  // at an even address
    return __half2float(*reinterpret_cast<const __half*>(from));
}
// Eight bytes at any address, by aligned words; none is touched that holds none of them.
__device__ __forceinline__ uint2 eight_bytes(Bytes from) {
    const auto address = reinterpret_cast<uintptr_t>(from);
    const auto* words = reinterpret_cast<const uint32_t*>(address & ~uintptr_t{3});
    const uint32_t by = static_cast<uint32_t>(address & 3) * 8;
    const uint32_t a = words[0], b = words[1], c = by ? words[2] : 0;
    return {__funnelshift_r(a, b, by), __funnelshift_r(b, c, by)};
}
// Bits 0 to 3 to bit 0 of four bytes.
__device__ __forceinline__ uint32_t spread_bits(uint32_t four) {
    return (four & 15) * 0x00204081u & 0x01010101u;
}
// The values of IQ4_NL and IQ4_XS plus 128; those of MXFP4, doubled to be whole, plus 16.
struct ByteTable {
    uint32_t word[4];
};
inline constexpr ByteTable kNonlinearTable{{0x3f2d1801, 0x766a5d4f, 0xa6998d81, 0xf1d9c5b5}};
inline constexpr ByteTable kMxfp4Table{{0x13121110, 0x1c181614, 0x0d0e0f10, 0x04080a0c}};
// 2^(e - 128), which may be subnormal: half of MXFP4's scale.
__device__ __forceinline__ float mxfp4_scale(uint32_t e) {
    return __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}
// Of four bytes below 16, the entries of a table of 16 bytes.
template <ByteTable kTable>
__device__ __forceinline__ uint32_t looked_up(uint32_t four) {
    const uint32_t joined = four | four >> 4;  // two selectors in each of bytes 0 and 2
    const uint32_t selectors = __byte_perm(joined, 0, 0x4420);
    const uint32_t low = __byte_perm(kTable.word[0], kTable.word[1], selectors & 0x7777);
    const uint32_t high = __byte_perm(kTable.word[2], kTable.word[3], selectors & 0x7777);
    const uint32_t choose = (four >> 3 & 0x01010101u) * 0xff;
    return (low & ~choose) | (high & choose);
}

// Octet q (0..3) of 16 bytes of nibbles: the low ones are weights 0 to 15, the high ones the rest.
__device__ __forceinline__ void split_nibbles(Bytes from, uint32_t q, Octet& out) {
    const uint2 bytes = eight_bytes(from + q % 2 * 8);
    const uint32_t by = q / 2 * 4;
    out.code[0] = bytes.x >> by & 0x0f0f0f0f;
    out.code[1] = bytes.y >> by & 0x0f0f0f0f;
}
__device__ __forceinline__ void add_fifth_bits(uint32_t eight, Octet& out) {
    out.code[0] |= spread_bits(eight) << 4;
    out.code[1] |= spread_bits(eight >> 4) << 4;
}
template <ByteTable kTable>
__device__ __forceinline__ void look_up(Octet& out) {
    out.code[0] = looked_up<kTable>(out.code[0]);
    out.code[1] = looked_up<kTable>(out.code[1]);
}
// 128 weights share 32 bytes: group j of them is bits 2j, 2j + 1.
__device__ __forceinline__ void two_bits(Bytes from, uint32_t group, uint32_t q, Octet& out) {
    const uint2 bytes = eight_bytes(from + group / 4 * 32 + q * 8);
    const uint32_t by = group % 4 * 2;
    out.code[0] = bytes.x >> by & 0x03030303;
    out.code[1] = bytes.y >> by & 0x03030303;
}
// 6-bit scale and minimum of a group of Q4_K and Q5_K.
__device__ __forceinline__ void set_pair(Bytes block, uint32_t group, Octet& out) {
    const Bytes from = block + 4;
    uint32_t scale, minimum;
    if (group < 4) {
        scale = byte_at(from, group) & 63;
        minimum = byte_at(from, group + 4) & 63;
    } else {
        const uint32_t low = byte_at(from, group + 4);
        scale = (low & 15) | byte_at(from, group - 4) >> 6 << 4;
        minimum = low >> 4 | byte_at(from, group) >> 6 << 4;
    }
    out.scale = __fmul_rn(half_at(block), static_cast<float>(scale));
    out.minimum = __fmul_rn(half_at(block + 2), static_cast<float>(minimum));
}

__device__ __forceinline__ uint32_t grid_entry(const uint64_t* grid, uint32_t index) {
    return reinterpret_cast<const uint16_t*>(grid)[index];
}
// Seven bits of signs; the eighth makes the number of minuses even.
__device__ __forceinline__ uint32_t eight_signs(uint32_t seven) {
    seven &= 127;
    return seven | (__popc(seven) & 1) << 7;
}
// Weights of a grid of values of kBits bits: `offset` plus or minus values[...].
template <int kBits, int kCount, class Value>
__device__ __forceinline__ uint64_t signed_values(uint32_t entry, uint32_t signs, int offset,
                                                  const Value& value) {
    uint64_t codes = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        const int v = value(entry >> (kBits * i) & ((1 << kBits) - 1));
        codes |= uint64_t(uint8_t(offset + (signs >> i & 1 ? -v : v))) << (8 * i);
    }
    return codes;
}
__device__ __forceinline__ void set_codes(uint64_t codes, Octet& out) {
    out.code[0] = static_cast<uint32_t>(codes);
    out.code[1] = static_cast<uint32_t>(codes >> 32);
}
__device__ __forceinline__ void grid_of_8(const uint64_t* grid, uint32_t index, uint32_t signs,
                                          Octet& out) {
    const auto value = [](uint32_t n) { return static_cast<int>(0x002b1908u >> (8 * n) & 0xff); };
    set_codes(signed_values<2, 8>(grid_entry(grid, index), signs, 64, value), out);
}
__device__ __forceinline__ float quarter_scale(float d, uint32_t nibble) {
    return d * (0.5f + static_cast<float>(nibble)) * 0.25f;
}
// Eight weights of IQ1 as eighths: 8 * (-1, 0, 1) + 1 or - 1.
__device__ __forceinline__ void eighths(uint32_t index, bool down, Octet& out) {
    const auto value = [](uint32_t n) { return 8 * (static_cast<int>(n) - 1); };
    set_codes(signed_values<2, 8>(grid_entry(grids::kIq1, index), 0, 16 + (down ? -1 : 1), value),
              out);
}
__device__ __forceinline__ float eighth_scale(float d, uint32_t three) {
    return d * static_cast<float>(2 * (three & 7) + 1) * 0.125f;
}

}  // namespace unpack

// One type: weights and bytes of a block, kOffset, and octet number `octet` of the block.
template <WeightType kType>
struct Unpack;

#define GRANARY_UNPACK(type, weights, bytes, offset)                                           \
    template <>                                                                                \
    struct Unpack<WeightType::type> {                                                          \
        static constexpr uint32_t kWeights = weights, kBytes = bytes, kOffset = offset;        \
        __device__ __forceinline__ static Octet octet(const std::byte* block, uint32_t octet); \
    };                                                                                         \
    __device__ __forceinline__ Octet Unpack<WeightType::type>::octet(                          \
        [[maybe_unused]] const std::byte* block, [[maybe_unused]] uint32_t octet)

GRANARY_UNPACK(q4_0, 32, 18, 8) {
    Octet out{{}, unpack::half_at(block), 0};
    unpack::split_nibbles(block + 2, octet, out);
    return out;
}
GRANARY_UNPACK(q4_1, 32, 20, 0) {
    Octet out{{}, unpack::half_at(block), -unpack::half_at(block + 2)};
    unpack::split_nibbles(block + 4, octet, out);
    return out;
}
GRANARY_UNPACK(q5_0, 32, 22, 16) {
    Octet out{{}, unpack::half_at(block), 0};
    unpack::split_nibbles(block + 6, octet, out);
    unpack::add_fifth_bits(unpack::byte_at(block, 2 + octet), out);
    return out;
}
GRANARY_UNPACK(q5_1, 32, 24, 0) {
    Octet out{{}, unpack::half_at(block), -unpack::half_at(block + 2)};
    unpack::split_nibbles(block + 8, octet, out);
    unpack::add_fifth_bits(unpack::byte_at(block, 4 + octet), out);
    return out;
}
GRANARY_UNPACK(q8_0, 32, 34, 128) {
    const uint2 bytes = unpack::eight_bytes(block + 2 + 8 * octet);
    return {{bytes.x ^ 0x80808080u, bytes.y ^ 0x80808080u}, unpack::half_at(block), 0};
}
GRANARY_UNPACK(mxfp4, 32, 17, 16) {
    Octet out{{}, unpack::mxfp4_scale(unpack::byte_at(block)), 0};
    unpack::split_nibbles(block + 1, octet, out);
    unpack::look_up<unpack::kMxfp4Table>(out);
    return out;
}
GRANARY_UNPACK(tq2_0, 256, 66, 1) {
    Octet out{{}, unpack::half_at(block + 64), 0};
    unpack::two_bits(block, octet / 4, octet % 4, out);
    return out;
}
GRANARY_UNPACK(q4_k, 256, 144, 0) {
    const uint32_t group = octet / 4, by = group % 2 * 4;
    const uint2 bytes = unpack::eight_bytes(block + 16 + group / 2 * 32 + octet % 4 * 8);
    Octet out{{bytes.x >> by & 0x0f0f0f0f, bytes.y >> by & 0x0f0f0f0f}, 0, 0};
    unpack::set_pair(block, group, out);
    return out;
}
GRANARY_UNPACK(q5_k, 256, 176, 0) {
    const uint32_t group = octet / 4, by = group % 2 * 4;
    const uint2 bytes = unpack::eight_bytes(block + 48 + group / 2 * 32 + octet % 4 * 8);
    const uint2 fifth = unpack::eight_bytes(block + 16 + octet % 4 * 8);
    Octet out{{(bytes.x >> by & 0x0f0f0f0f) | (fifth.x >> group & 0x01010101) << 4,
               (bytes.y >> by & 0x0f0f0f0f) | (fifth.y >> group & 0x01010101) << 4},
              0,
              0};
    unpack::set_pair(block, group, out);
    return out;
}
GRANARY_UNPACK(q6_k, 256, 210, 32) {
    const uint32_t half = octet / 16, group = octet / 4 % 4, q = octet % 4;
    const uint2 low = unpack::eight_bytes(block + half * 64 + group % 2 * 32 + q * 8);
    const uint2 high = unpack::eight_bytes(block + 128 + half * 32 + q * 8);
    const uint32_t by = group / 2 * 4, pair = group * 2;
    const auto scale = static_cast<int8_t>(block[192 + octet / 2]);
    return {{(low.x >> by & 0x0f0f0f0f) | (high.x >> pair & 0x03030303) << 4,
             (low.y >> by & 0x0f0f0f0f) | (high.y >> pair & 0x03030303) << 4},
            __fmul_rn(unpack::half_at(block + 208), static_cast<float>(scale)),
            0};
}
GRANARY_UNPACK(q2_k, 256, 84, 0) {
    const uint32_t both = unpack::byte_at(block, octet / 2);
    Octet out{{},
              __fmul_rn(unpack::half_at(block + 80), static_cast<float>(both & 15)),
              __fmul_rn(unpack::half_at(block + 82), static_cast<float>(both >> 4))};
    unpack::two_bits(block + 16, octet / 4, octet % 4, out);
    return out;
}
GRANARY_UNPACK(q3_k, 256, 110, 4) {
    const uint32_t group = octet / 4, number = octet / 2;
    const uint32_t low = unpack::byte_at(block, 96 + number % 8) >> (number / 8 * 4) & 15;
    const uint32_t high = unpack::byte_at(block, 104 + number % 4) >> (number / 4 * 2) & 3;
    const int scale = static_cast<int>(low | high << 4) - 32;
    Octet out{{}, __fmul_rn(unpack::half_at(block + 108), static_cast<float>(scale)), 0};
    unpack::two_bits(block + 32, group, octet % 4, out);
    const uint2 third = unpack::eight_bytes(block + octet % 4 * 8);
    out.code[0] |= (third.x >> group & 0x01010101) << 2;
    out.code[1] |= (third.y >> group & 0x01010101) << 2;
    return out;
}

GRANARY_UNPACK(iq4_nl, 32, 18, 128) {
    Octet out{{}, unpack::half_at(block), 0};
    unpack::split_nibbles(block + 2, octet, out);
    unpack::look_up<unpack::kNonlinearTable>(out);
    return out;
}
GRANARY_UNPACK(iq4_xs, 256, 136, 128) {
    const uint32_t group = octet / 4;
    const uint32_t low = unpack::byte_at(block, 4 + group / 2) >> (group % 2 * 4) & 15;
    const uint32_t high = unpack::pair_at(block + 2) >> (2 * group) & 3;
    const int scale = static_cast<int>(low | high << 4) - 32;
    Octet out{{}, __fmul_rn(unpack::half_at(block), static_cast<float>(scale)), 0};
    unpack::split_nibbles(block + 8 + group * 16, octet % 4, out);
    unpack::look_up<unpack::kNonlinearTable>(out);
    return out;
}

GRANARY_UNPACK(iq2_xxs, 256, 66, 64) {
    const std::byte* codes = block + 2 + octet / 4 * 8;
    const uint32_t signs = unpack::word_at(codes + 4), q = octet % 4;
    Octet out{{}, unpack::quarter_scale(unpack::half_at(block), signs >> 28), 0};
    unpack::grid_of_8(grids::kIq2Xxs, unpack::byte_at(codes, q),
                      unpack::eight_signs(signs >> (7 * q)), out);
    return out;
}
GRANARY_UNPACK(iq2_xs, 256, 74, 64) {
    const uint32_t code = unpack::pair_at(block + 2 + 2 * octet);
    const uint32_t scales = unpack::byte_at(block, 66 + octet / 4);
    Octet out{
        {}, unpack::quarter_scale(unpack::half_at(block), scales >> (octet / 2 % 2 * 4) & 15), 0};
    unpack::grid_of_8(grids::kIq2Xs, code & 511, unpack::eight_signs(code >> 9), out);
    return out;
}
GRANARY_UNPACK(iq2_s, 256, 82, 64) {
    const uint32_t group = octet / 4;
    const uint32_t high = unpack::byte_at(block, 66 + group) >> (2 * (octet % 4)) & 3;
    const uint32_t scales = unpack::byte_at(block, 74 + group);
    Octet out{
        {}, unpack::quarter_scale(unpack::half_at(block), scales >> (octet / 2 % 2 * 4) & 15), 0};
    unpack::grid_of_8(grids::kIq2S, unpack::byte_at(block, 2 + octet) | high << 8,
                      unpack::byte_at(block, 34 + octet), out);
    return out;
}
GRANARY_UNPACK(iq3_xxs, 256, 98, 64) {
    const uint32_t all = unpack::word_at(block + 66 + octet / 4 * 4), q = octet % 4;
    const uint32_t signs = unpack::eight_signs(all >> (7 * q));
    const auto value = [](uint32_t n) {
        return static_cast<int>((n < 4 ? 0x1c140c04u : 0x3e342c24u) >> (8 * (n % 4)) & 0xff);
    };
    Octet out{{}, unpack::half_at(block) * (0.5f + static_cast<float>(all >> 28)) * 0.5f, 0};
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i)
        out.code[i] = static_cast<uint32_t>(unpack::signed_values<3, 4>(
            unpack::grid_entry(grids::kIq3Xxs, unpack::byte_at(block, 2 + octet * 2 + i)),
            signs >> (4 * i), 64, value));
    return out;
}
GRANARY_UNPACK(iq3_s, 256, 110, 16) {
    const uint32_t group = octet / 4, q = octet % 4;
    const uint32_t highs = unpack::byte_at(block, 66 + group) >> (2 * q);
    const uint32_t signs = unpack::byte_at(block, 74 + octet);
    const uint32_t scale = unpack::byte_at(block, 106 + group / 2) >> (group % 2 * 4) & 15;
    const auto value = [](uint32_t n) { return static_cast<int>(2 * n + 1); };
    Octet out{{}, __fmul_rn(unpack::half_at(block), static_cast<float>(1 + 2 * scale)), 0};
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i)
        out.code[i] = static_cast<uint32_t>(unpack::signed_values<3, 4>(
            unpack::grid_entry(grids::kIq3S,
                               unpack::byte_at(block, 2 + octet * 2 + i) | (highs >> i & 1) << 8),
            signs >> (4 * i), 16, value));
    return out;
}
GRANARY_UNPACK(iq1_s, 256, 50, 16) {
    const uint32_t high = unpack::pair_at(block + 34 + octet / 4 * 2);
    Octet out{{}, unpack::eighth_scale(unpack::half_at(block), high >> 12), 0};
    unpack::eighths(unpack::byte_at(block, 2 + octet) | (high >> (3 * (octet % 4)) & 7) << 8,
                    high >> 15, out);
    return out;
}
GRANARY_UNPACK(iq1_m, 256, 56, 16) {
    const uint32_t group = octet / 4;
    const uint32_t high = unpack::byte_at(block, 32 + octet / 2) >> (octet % 2 * 4);
    uint32_t d = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) d |= unpack::pair_at(block + 48 + 2 * i) >> 12 << (4 * i);
    const uint32_t scales =
        unpack::pair_at(block + 48 + group / 2 * 2) >> (group % 2 * 6 + octet / 2 % 2 * 3);
    Octet out{{}, unpack::eighth_scale(__half2float(__ushort_as_half(uint16_t(d))), scales), 0};
    unpack::eighths(unpack::byte_at(block, octet) | (high & 7) << 8, high & 8, out);
    return out;
}

#undef GRANARY_UNPACK

template <WeightType kType>
__device__ __forceinline__ void decode_octet(const std::byte* row, uint32_t octet,
                                             float (&out)[8]) {
    using Type = Unpack<kType>;
    constexpr uint32_t kOctets = Type::kWeights / 8;
    const Octet from = Type::octet(row + size_t{octet / kOctets} * Type::kBytes, octet % kOctets);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const auto code = static_cast<int>(from.code[i / 4] >> (8 * (i % 4)) & 0xff);
        out[i] = __fsub_rn(
            __fmul_rn(from.scale, static_cast<float>(code - static_cast<int>(Type::kOffset))),
            from.minimum);
    }
}

// The f32 values of weights 8 octet .. 8 octet + 7 of a row of any type. Rows of F32, F16 and BF16
// of `cols` weights may end inside the octet: zeros follow.
__device__ __noinline__ inline void decode_octet(WeightType type, const std::byte* row,
                                                 uint32_t octet, uint32_t cols, float (&out)[8]) {
    switch (type) {
        case WeightType::f32:
        case WeightType::f16:
        case WeightType::bf16:
            for (uint32_t i = 0; i < 8; ++i) {
                const uint32_t col = octet * 8 + i;
                if (col >= cols)
                    out[i] = 0;
                else if (type == WeightType::f32)
                    out[i] = reinterpret_cast<const float*>(row)[col];
                else if (type == WeightType::f16)
                    out[i] = __half2float(reinterpret_cast<const __half*>(row)[col]);
                else
                    out[i] = __uint_as_float(uint32_t{reinterpret_cast<const uint16_t*>(row)[col]}
                                             << 16);
            }
            return;
#define GRANARY_CASE(type)                               \
    case WeightType::type:                               \
        decode_octet<WeightType::type>(row, octet, out); \
        return;
            GRANARY_CASE(q4_0)
            GRANARY_CASE(q4_1)
            GRANARY_CASE(q5_0)
            GRANARY_CASE(q5_1)
            GRANARY_CASE(q8_0)
            GRANARY_CASE(q2_k)
            GRANARY_CASE(q3_k)
            GRANARY_CASE(q4_k)
            GRANARY_CASE(q5_k)
            GRANARY_CASE(q6_k)
            GRANARY_CASE(iq2_xxs)
            GRANARY_CASE(iq2_xs)
            GRANARY_CASE(iq3_xxs)
            GRANARY_CASE(iq1_s)
            GRANARY_CASE(iq4_nl)
            GRANARY_CASE(iq3_s)
            GRANARY_CASE(iq2_s)
            GRANARY_CASE(iq4_xs)
            GRANARY_CASE(iq1_m)
            GRANARY_CASE(tq2_0)
            GRANARY_CASE(mxfp4)
#undef GRANARY_CASE
        default:  // no program comes here with a type that it cannot run
            __trap();
    }
}

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// The 8-bit product with AVX-512 VNNI: one instruction multiplies four columns of sixteen rows.
// Compiled with its own flags; nothing here may be called without them.
#include <immintrin.h>

#include "gpu/host/codes.h"
#include "gpu/host/tile.h"
#include "gpu/host/unroll.h"

namespace granary::gpu::host {
namespace {

// Where the same 16 bytes of sixteen rows lie.
struct Rows {
    const std::byte* row[kTileRows];
};

inline __m128i piece(const std::byte* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

// Four vectors: lane r of vector i is dword i of the 16 bytes at `offset` of row r.
inline void transpose(const Rows& rows, size_t offset, __m512i out[4]) {
    __m512i in[4];  // 128-bit lane l of in[j]: row 4 l + j
    GRANARY_UNROLL
    for (int j = 0; j < 4; ++j) {
        __m512i v = _mm512_castsi128_si512(piece(rows.row[j] + offset));
        v = _mm512_inserti32x4(v, piece(rows.row[4 + j] + offset), 1);
        v = _mm512_inserti32x4(v, piece(rows.row[8 + j] + offset), 2);
        in[j] = _mm512_inserti32x4(v, piece(rows.row[12 + j] + offset), 3);
    }
    const __m512i low01 = _mm512_unpacklo_epi32(in[0], in[1]);
    const __m512i low23 = _mm512_unpacklo_epi32(in[2], in[3]);
    const __m512i high01 = _mm512_unpackhi_epi32(in[0], in[1]);
    const __m512i high23 = _mm512_unpackhi_epi32(in[2], in[3]);
    out[0] = _mm512_unpacklo_epi64(low01, low23);
    out[1] = _mm512_unpackhi_epi64(low01, low23);
    out[2] = _mm512_unpacklo_epi64(high01, high23);
    out[3] = _mm512_unpackhi_epi64(high01, high23);
}

inline void put(Tile* tile, size_t quad, __m512i codes) {
    _mm512_store_si512(tile->codes[quad], codes);
}
inline __m512 to_float(__m512i v) {
    return _mm512_cvtepi32_ps(v);
}
inline __m512 halves_to_float(__m512i low16) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(low16));
}
inline __m512 gather_halves(const Rows& rows, size_t offset) {
    alignas(32) uint16_t half[kTileRows];
    for (uint32_t r = 0; r < kTileRows; ++r)
        __builtin_memcpy(&half[r], rows.row[r] + offset, sizeof half[r]);
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(half)));
}

// The header that Q4_K and Q5_K share: d, dmin and eight pairs of 6-bit scale and minimum.
inline void unpack_pairs(const Rows& rows, Tile* tile, uint32_t group) {
    __m512i word[4];  // d and dmin; bytes 0-3; bytes 4-7; bytes 8-11 (see decode_k.cpp)
    transpose(rows, 0, word);
    const __m512 d = halves_to_float(word[0]);
    const __m512 dmin = halves_to_float(_mm512_srli_epi32(word[0], 16));
    const __m512i six = _mm512_set1_epi32(63), four = _mm512_set1_epi32(15);
    const __m512i upper = _mm512_set1_epi32(48);
    GRANARY_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
        const auto scale = _mm512_and_si512(_mm512_srli_epi32(word[1], 8 * i), six);
        const auto minimum = _mm512_and_si512(_mm512_srli_epi32(word[2], 8 * i), six);
        _mm512_store_ps(tile->scale[group + i], _mm512_mul_ps(d, to_float(scale)));
        _mm512_store_ps(tile->minimum[group + i], _mm512_mul_ps(dmin, to_float(minimum)));
    }
    GRANARY_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
        const auto low = _mm512_srli_epi32(word[3], 8 * i);
        const auto scale_high = _mm512_srli_epi32(word[1], 8 * i + 2);  // bits 6, 7 to 4, 5
        const auto minimum_high = _mm512_srli_epi32(word[2], 8 * i + 2);
        const auto scale =
            _mm512_or_si512(_mm512_and_si512(low, four), _mm512_and_si512(scale_high, upper));
        const auto minimum = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi32(low, 4), four),
                                             _mm512_and_si512(minimum_high, upper));
        _mm512_store_ps(tile->scale[group + 4 + i], _mm512_mul_ps(d, to_float(scale)));
        _mm512_store_ps(tile->minimum[group + 4 + i], _mm512_mul_ps(dmin, to_float(minimum)));
    }
}

inline void unpack_q4_k(const Rows& rows, Tile* tile, uint32_t group) {
    unpack_pairs(rows, tile, group);
    const __m512i low = _mm512_set1_epi8(15);
    for (uint32_t part = 0; part < 8; ++part) {
        __m512i word[4];
        transpose(rows, 16 + 16 * part, word);
        const size_t quad = (group + part / 2 * 2) * 8 + part % 2 * 4;
        GRANARY_UNROLL
        for (size_t i = 0; i < 4; ++i) {
            put(tile, quad + i, _mm512_and_si512(word[i], low));
            put(tile, quad + 8 + i, _mm512_and_si512(_mm512_srli_epi32(word[i], 4), low));
        }
    }
}

inline void unpack_q5_k(const Rows& rows, Tile* tile, uint32_t group) {
    unpack_pairs(rows, tile, group);
    const __m512i low = _mm512_set1_epi8(15), fifth = _mm512_set1_epi8(16);
    __m512i high[8];  // bit g of each byte: the fifth bit of group g
    transpose(rows, 16, high);
    transpose(rows, 32, high + 4);
    for (uint32_t part = 0; part < 8; ++part) {
        __m512i word[4];
        transpose(rows, 48 + 16 * part, word);
        const __m128i even = _mm_cvtsi32_si128(static_cast<int>(part / 2 * 2));
        const size_t quad = (group + part / 2 * 2) * 8 + part % 2 * 4;
        GRANARY_UNROLL
        for (size_t i = 0; i < 4; ++i) {
            const __m512i bits = _mm512_srl_epi32(high[part % 2 * 4 + i], even);
            put(tile, quad + i,
                _mm512_or_si512(_mm512_and_si512(word[i], low),
                                _mm512_and_si512(_mm512_slli_epi32(bits, 4), fifth)));
            put(tile, quad + 8 + i,
                _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi32(word[i], 4), low),
                                _mm512_and_si512(_mm512_slli_epi32(bits, 3), fifth)));
        }
    }
}

inline void unpack_q6_k(const Rows& rows, Tile* tile, uint32_t group) {
    const __m512i low = _mm512_set1_epi8(15), high = _mm512_set1_epi8(48);
    for (uint32_t half = 0; half < 2; ++half) {
        for (uint32_t part = 0; part < 2; ++part) {
            __m512i first[4], second[4], upper[4];
            transpose(rows, 64 * half + 16 * part, first);        // groups 0 and 2
            transpose(rows, 64 * half + 32 + 16 * part, second);  // groups 1 and 3
            transpose(rows, 128 + 32 * half + 16 * part, upper);
            GRANARY_UNROLL
            for (size_t i = 0; i < 4; ++i) {
                const size_t quad = (group + 4 * half) * 8 + part * 4 + i;
                const auto join = [&](__m512i nibbles, __m512i bits) {
                    return _mm512_or_si512(_mm512_and_si512(nibbles, low),
                                           _mm512_and_si512(bits, high));
                };
                put(tile, quad, join(first[i], _mm512_slli_epi32(upper[i], 4)));
                put(tile, quad + 8, join(second[i], _mm512_slli_epi32(upper[i], 2)));
                put(tile, quad + 16, join(_mm512_srli_epi32(first[i], 4), upper[i]));
                put(tile, quad + 24,
                    join(_mm512_srli_epi32(second[i], 4), _mm512_srli_epi32(upper[i], 2)));
            }
        }
    }
    const __m512 d = gather_halves(rows, 208);
    __m512i scales[4];
    transpose(rows, 192, scales);
    for (unsigned i = 0; i < 16; ++i) {
        const auto scale =
            _mm512_srai_epi32(_mm512_slli_epi32(scales[i / 4], 24 - 8 * (i % 4)), 24);
        _mm512_store_ps(tile->scale[2 * group + i], _mm512_mul_ps(d, to_float(scale)));
    }
}

inline void unpack_q8_0(const Rows& rows, Tile* tile, uint32_t group) {
    const __m512i offset = _mm512_set1_epi8(static_cast<char>(0x80));
    for (uint32_t part = 0; part < 2; ++part) {
        __m512i word[4];
        transpose(rows, 2 + 16 * part, word);
        GRANARY_UNROLL
        for (size_t i = 0; i < 4; ++i)
            put(tile, group * 8 + part * 4 + i, _mm512_xor_si512(word[i], offset));
    }
    _mm512_store_ps(tile->scale[group], gather_halves(rows, 0));
}

template <void (*kUnpack)(const Rows&, Tile*, uint32_t), uint32_t kGroups, size_t kBytes>
void unpack_blocks(const TileWeights& weights, uint32_t first_group, uint32_t groups, Tile* tile) {
    Rows rows;
    for (uint32_t r = 0; r < kTileRows; ++r) {
        const uint32_t row = r < weights.rows ? r : weights.rows - 1;
        rows.row[r] = weights.row + row * weights.row_bytes + first_group / kGroups * kBytes;
    }
    for (uint32_t group = 0; group < groups; group += kGroups) {
        kUnpack(rows, tile, group);
        for (const std::byte*& row : rows.row) row += kBytes;
    }
}

void unpack(const TileWeights& weights, uint32_t first_group, uint32_t groups, Tile* tile) {
    switch (weights.type) {
        case WeightType::q4_k:
            return unpack_blocks<unpack_q4_k, 8, 144>(weights, first_group, groups, tile);
        case WeightType::q5_k:
            return unpack_blocks<unpack_q5_k, 8, 176>(weights, first_group, groups, tile);
        case WeightType::q6_k:
            return unpack_blocks<unpack_q6_k, 8, 210>(weights, first_group, groups, tile);
        case WeightType::q8_0:
            return unpack_blocks<unpack_q8_0, 1, 34>(weights, first_group, groups, tile);
        default:
            return unpack_any(weights, first_group, groups, tile);
    }
}

inline __m512i dot4(__m512i sum, __m512i weights, const int8_t* codes) {
    int four;
    __builtin_memcpy(&four, codes, sizeof four);
    return _mm512_dpbusd_epi32(sum, weights, _mm512_set1_epi32(four));
}

// kRows activation rows at a time. kParts: scales per group. kMinimum: the format has minimums.
template <int kRows, int kParts, bool kMinimum>
void dot_rows(const Tile& tile, unsigned offset_bits, uint32_t first_group, uint32_t groups,
              const std::byte* const* activations, float* out, size_t stride, __mmask16 rows,
              bool add) {
    constexpr int kQuads = 8 / kParts;
    const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(offset_bits));
    const CodeGroup* in[kRows];
    __m512 acc[kRows];
    GRANARY_UNROLL
    for (int i = 0; i < kRows; ++i) {
        in[i] = reinterpret_cast<const CodeGroup*>(activations[i]) + first_group;
        acc[i] = add ? _mm512_maskz_loadu_ps(rows, out + static_cast<size_t>(i) * stride)
                     : _mm512_setzero_ps();
    }
    for (uint32_t g = 0; g < groups; ++g) {
        GRANARY_UNROLL
        for (int part = 0; part < kParts; ++part) {
            __m512i weight[kQuads];
            GRANARY_UNROLL
            for (int q = 0; q < kQuads; ++q)
                weight[q] =
                    _mm512_load_si512(tile.codes[g * 8 + static_cast<uint32_t>(part * kQuads + q)]);
            const uint32_t scales = g * kParts + static_cast<uint32_t>(part);
            const __m512 scale = _mm512_load_ps(tile.scale[scales]);
            GRANARY_UNROLL
            for (int i = 0; i < kRows; ++i) {
                __m512i sum = _mm512_setzero_si512();
                if constexpr (!kMinimum) {
                    const int32_t* negative = in[i][g].negative + part;
                    sum = _mm512_set1_epi32(kParts == 1 ? negative[0] + negative[1] : negative[0]);
                    sum = _mm512_sll_epi32(sum, shift);
                }
                const int8_t* code = in[i][g].code + part * 16;
                GRANARY_UNROLL
                for (int q = 0; q < kQuads; ++q) sum = dot4(sum, weight[q], code + 4 * q);
                const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(in[i][g].scale));
                acc[i] = _mm512_fmadd_ps(both, to_float(sum), acc[i]);
                if constexpr (kMinimum) {
                    const float total =
                        kParts == 1 ? in[i][g].sum
                                    : in[i][g].scale * static_cast<float>(-in[i][g].negative[part]);
                    acc[i] = _mm512_fnmadd_ps(_mm512_load_ps(tile.minimum[scales]),
                                              _mm512_set1_ps(total), acc[i]);
                }
            }
        }
    }
    GRANARY_UNROLL
    for (int i = 0; i < kRows; ++i)
        _mm512_mask_storeu_ps(out + static_cast<size_t>(i) * stride, rows, acc[i]);
}

template <int kParts, bool kMinimum>
void dot_all(const Tile& tile, unsigned offset_bits, uint32_t first_group, uint32_t groups,
             std::span<const std::byte* const> activations, float* out, size_t stride,
             uint32_t rows, bool add) {
    const auto mask = static_cast<__mmask16>((1u << rows) - 1);
    size_t i = 0;
    const auto run = [&](auto count, auto function) {
        for (; i + count <= activations.size(); i += count)
            function(tile, offset_bits, first_group, groups, &activations[i], out + i * stride,
                     stride, mask, add);
    };
    run(size_t{8}, dot_rows<8, kParts, kMinimum>);
    run(size_t{4}, dot_rows<4, kParts, kMinimum>);
    run(size_t{2}, dot_rows<2, kParts, kMinimum>);
    run(size_t{1}, dot_rows<1, kParts, kMinimum>);
}

void dot(const BlockFormat& format, const Tile& tile, uint32_t first_group, uint32_t groups,
         std::span<const std::byte* const> activations, float* out, size_t stride, uint32_t rows,
         bool add) {
    const auto function = format.halves
                              ? (format.has_minimum ? dot_all<2, true> : dot_all<2, false>)
                              : (format.has_minimum ? dot_all<1, true> : dot_all<1, false>);
    function(tile, format.offset_bits, first_group, groups, activations, out, stride, rows, add);
}

}  // namespace

const TileKernels kTileAvx512{"AVX-512 VNNI", unpack, dot};

}  // namespace granary::gpu::host

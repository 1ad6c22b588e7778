// SPDX-License-Identifier: GPL-3.0-or-later
// The 8-bit product with AVX-512 VNNI: one instruction multiplies four columns of sixteen rows.
// Compiled with its own flags; nothing here may be called without them.
#include <immintrin.h>

#include "gpu/host/codes.h"
#include "gpu/host/tile_unpack.h"

namespace granary::gpu::host {
namespace {

inline __m512 to_float(__m512i v) {
    return _mm512_cvtepi32_ps(v);
}

struct Isa {
    static constexpr uint32_t kRows = 16;
    using Int = __m512i;
    using Float = __m512;

    static __m128i piece(const std::byte* from) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    }
    // Lane r of out[i] is dword i of the 16 bytes at `offset` of row r.
    static void transpose(const std::byte* const* rows, size_t offset, Int out[4]) {
        Int in[4];  // 128-bit lane l of in[j]: row 4 l + j
        GRANARY_UNROLL
        for (int j = 0; j < 4; ++j) {
            Int v = _mm512_castsi128_si512(piece(rows[j] + offset));
            v = _mm512_inserti32x4(v, piece(rows[4 + j] + offset), 1);
            v = _mm512_inserti32x4(v, piece(rows[8 + j] + offset), 2);
            in[j] = _mm512_inserti32x4(v, piece(rows[12 + j] + offset), 3);
        }
        const Int low01 = _mm512_unpacklo_epi32(in[0], in[1]);
        const Int low23 = _mm512_unpacklo_epi32(in[2], in[3]);
        const Int high01 = _mm512_unpackhi_epi32(in[0], in[1]);
        const Int high23 = _mm512_unpackhi_epi32(in[2], in[3]);
        out[0] = _mm512_unpacklo_epi64(low01, low23);
        out[1] = _mm512_unpackhi_epi64(low01, low23);
        out[2] = _mm512_unpacklo_epi64(high01, high23);
        out[3] = _mm512_unpackhi_epi64(high01, high23);
    }
    static Int bytes(int value) { return _mm512_set1_epi8(static_cast<char>(value)); }
    static Int words(int value) { return _mm512_set1_epi32(value); }
    static Int both(Int a, Int b) { return _mm512_and_si512(a, b); }
    static Int either(Int a, Int b) { return _mm512_or_si512(a, b); }
    static Int differ(Int a, Int b) { return _mm512_xor_si512(a, b); }
    static Int right(Int a, int bits) { return _mm512_srli_epi32(a, static_cast<unsigned>(bits)); }
    static Int left(Int a, int bits) { return _mm512_slli_epi32(a, static_cast<unsigned>(bits)); }
    static Int times(Int a, Int b) { return _mm512_mullo_epi32(a, b); }
    static Int subtract(Int a, Int b) { return _mm512_sub_epi32(a, b); }
    static Int signed_byte(Int a, int byte) {
        return _mm512_srai_epi32(left(a, 24 - 8 * byte), 24);
    }
    static Int table(const uint8_t* sixteen) {
        return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(sixteen)));
    }
    static Int lookup(Int table, Int index) { return _mm512_shuffle_epi8(table, index); }
    static Float to_float(Int a) { return _mm512_cvtepi32_ps(a); }
    static Float mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
    static Float minus(Float a) {
        return _mm512_castsi512_ps(differ(_mm512_castps_si512(a), words(INT32_MIN)));
    }
    static Float half(Int low16) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(low16)); }
    static void store(uint8_t* to, Int a) { _mm512_store_si512(to, a); }
    static void store(float* to, Float a) { _mm512_store_ps(to, a); }
};

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

const TileKernels kTileAvx512{"AVX-512 VNNI", unpack_tile<Isa>, dot};

}  // namespace granary::gpu::host

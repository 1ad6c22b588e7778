// SPDX-License-Identifier: GPL-3.0-or-later
// The 8-bit product with AVX2 and FMA: vpmaddubsw adds pairs in 16 bits, which codes up to 127
// cannot overflow; larger ones are multiplied as signed numbers, |w| <= 128 times +-127.
// Compiled with its own flags; nothing here may be called without them.
#include <immintrin.h>

#include "gpu/host/codes.h"
#include "gpu/host/tile_unpack.h"

namespace granary::gpu::host {
namespace {

struct Isa {
    static constexpr uint32_t kRows = 8;
    using Int = __m256i;
    using Float = __m256;

    // Lane r of out[i] is dword i of the 16 bytes at `offset` of row r.
    static void transpose(const std::byte* const* rows, size_t offset, Int out[4]) {
        Int in[4];  // rows j and 4 + j
        GRANARY_UNROLL
        for (int j = 0; j < 4; ++j)
            in[j] = _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(rows[4 + j] + offset),
                                        reinterpret_cast<const __m128i*>(rows[j] + offset));
        const Int low01 = _mm256_unpacklo_epi32(in[0], in[1]);
        const Int low23 = _mm256_unpacklo_epi32(in[2], in[3]);
        const Int high01 = _mm256_unpackhi_epi32(in[0], in[1]);
        const Int high23 = _mm256_unpackhi_epi32(in[2], in[3]);
        out[0] = _mm256_unpacklo_epi64(low01, low23);
        out[1] = _mm256_unpackhi_epi64(low01, low23);
        out[2] = _mm256_unpacklo_epi64(high01, high23);
        out[3] = _mm256_unpackhi_epi64(high01, high23);
    }
    static Int bytes(int value) { return _mm256_set1_epi8(static_cast<char>(value)); }
    static Int words(int value) { return _mm256_set1_epi32(value); }
    static Int both(Int a, Int b) { return _mm256_and_si256(a, b); }
    static Int either(Int a, Int b) { return _mm256_or_si256(a, b); }
    static Int differ(Int a, Int b) { return _mm256_xor_si256(a, b); }
    static Int right(Int a, int bits) { return _mm256_srli_epi32(a, bits); }
    static Int left(Int a, int bits) { return _mm256_slli_epi32(a, bits); }
    static Int times(Int a, Int b) { return _mm256_mullo_epi32(a, b); }
    static Int subtract(Int a, Int b) { return _mm256_sub_epi32(a, b); }
    static Int signed_byte(Int a, int byte) {
        return _mm256_srai_epi32(left(a, 24 - 8 * byte), 24);
    }
    static Int table(const uint8_t* sixteen) {
        return _mm256_broadcastsi128_si256(
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(sixteen)));
    }
    static Int lookup(Int table, Int index) { return _mm256_shuffle_epi8(table, index); }
    static Float to_float(Int a) { return _mm256_cvtepi32_ps(a); }
    static Float mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
    static Float minus(Float a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
    static Float half(Int low16) {
        const Int only = both(low16, words(0xffff));
        const Int packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(only, only), 0x08);
        return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
    }
    static void store(uint8_t* to, Int a) { _mm256_store_si256(reinterpret_cast<__m256i*>(to), a); }
    static void store(float* to, Float a) { _mm256_store_ps(to, a); }
};

inline __m256i dot4(__m256i sum, __m256i weights, __m256i codes) {
    const __m256i pairs = _mm256_maddubs_epi16(weights, codes);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

template <int kRows, int kParts, bool kMinimum, bool kSigned>
void dot_rows(const Tile& tile, unsigned offset_bits, uint32_t first_group, uint32_t groups,
              const std::byte* const* activations, float* out, size_t stride, uint32_t rows,
              bool add) {
    constexpr int kQuads = 8 / kParts;
    const CodeGroup* in[kRows];
    alignas(32) float edge[kTileRows] = {};
    __m256 acc[kRows][2];
    GRANARY_UNROLL
    for (int i = 0; i < kRows; ++i) {
        in[i] = reinterpret_cast<const CodeGroup*>(activations[i]) + first_group;
        if (add)
            __builtin_memcpy(edge, out + static_cast<size_t>(i) * stride, rows * sizeof(float));
        acc[i][0] = add ? _mm256_load_ps(edge) : _mm256_setzero_ps();
        acc[i][1] = add ? _mm256_load_ps(edge + 8) : _mm256_setzero_ps();
    }
    for (uint32_t g = 0; g < groups; ++g) {
        GRANARY_UNROLL
        for (int part = 0; part < kParts; ++part) {
            const auto* weights = &tile.codes[g * 8 + static_cast<uint32_t>(part * kQuads)];
            const uint32_t scales = g * kParts + static_cast<uint32_t>(part);
            GRANARY_UNROLL
            for (int i = 0; i < kRows; ++i) {
                const int32_t* negative = in[i][g].negative + part;
                __m256i sum[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
                if constexpr (!kMinimum && !kSigned) {
                    const int32_t all = kParts == 1 ? negative[0] + negative[1] : negative[0];
                    sum[0] = sum[1] = _mm256_set1_epi32(all * (1 << offset_bits));
                }
                const int8_t* code = in[i][g].code + part * 16;
                GRANARY_UNROLL
                for (int q = 0; q < kQuads; ++q) {
                    int four;
                    __builtin_memcpy(&four, code + 4 * q, sizeof four);
                    const __m256i codes = _mm256_set1_epi32(four);
                    GRANARY_UNROLL
                    for (int h = 0; h < 2; ++h) {
                        __m256i w =
                            _mm256_load_si256(reinterpret_cast<const __m256i*>(weights[q][8 * h]));
                        if constexpr (kSigned) {
                            w = _mm256_xor_si256(w, _mm256_set1_epi8(static_cast<char>(0x80)));
                            sum[h] = dot4(sum[h], _mm256_abs_epi8(w), _mm256_sign_epi8(codes, w));
                        } else {
                            sum[h] = dot4(sum[h], w, codes);
                        }
                    }
                }
                const __m256 in_scale = _mm256_set1_ps(in[i][g].scale);
                GRANARY_UNROLL
                for (int h = 0; h < 2; ++h) {
                    const __m256 both =
                        _mm256_mul_ps(_mm256_load_ps(tile.scale[scales] + 8 * h), in_scale);
                    acc[i][h] = _mm256_fmadd_ps(both, _mm256_cvtepi32_ps(sum[h]), acc[i][h]);
                    if constexpr (kMinimum) {
                        const float total = kParts == 1
                                                ? in[i][g].sum
                                                : in[i][g].scale * static_cast<float>(-negative[0]);
                        acc[i][h] = _mm256_fnmadd_ps(_mm256_load_ps(tile.minimum[scales] + 8 * h),
                                                     _mm256_set1_ps(total), acc[i][h]);
                    }
                }
            }
        }
    }
    GRANARY_UNROLL
    for (int i = 0; i < kRows; ++i) {
        _mm256_store_ps(edge, acc[i][0]);
        _mm256_store_ps(edge + 8, acc[i][1]);
        __builtin_memcpy(out + static_cast<size_t>(i) * stride, edge, rows * sizeof(float));
    }
}

template <int kParts, bool kMinimum, bool kSigned>
void dot_all(const Tile& tile, unsigned offset_bits, uint32_t first_group, uint32_t groups,
             std::span<const std::byte* const> activations, float* out, size_t stride,
             uint32_t rows, bool add) {
    size_t i = 0;
    for (; i + 3 <= activations.size(); i += 3)
        dot_rows<3, kParts, kMinimum, kSigned>(tile, offset_bits, first_group, groups,
                                               &activations[i], out + i * stride, stride, rows,
                                               add);
    for (; i < activations.size(); ++i)
        dot_rows<1, kParts, kMinimum, kSigned>(tile, offset_bits, first_group, groups,
                                               &activations[i], out + i * stride, stride, rows,
                                               add);
}

void dot(const BlockFormat& format, const Tile& tile, uint32_t first_group, uint32_t groups,
         std::span<const std::byte* const> activations, float* out, size_t stride, uint32_t rows,
         bool add) {
    const auto function = format.has_minimum
                              ? (format.halves ? dot_all<2, true, false> : dot_all<1, true, false>)
                          : format.halves             ? dot_all<2, false, false>
                          : format.largest_code > 127 ? dot_all<1, false, true>
                                                      : dot_all<1, false, false>;
    function(tile, format.offset_bits, first_group, groups, activations, out, stride, rows, add);
}

}  // namespace

const TileKernels kTileAvx2{"AVX2", unpack_tile<Isa>, dot};

}  // namespace granary::gpu::host

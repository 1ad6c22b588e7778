// SPDX-License-Identifier: GPL-3.0-or-later
// The 8-bit product with 256-bit vectors, for the files that are compiled for AVX2 and for
// AVX-VNNI. `Products` adds four products to each lane:
//   dot4(sum, weights, codes)  with unsigned weights and signed codes
//   kSigned                    weights above 127 overflow it: they must be multiplied as signed
// Everything lies in the unnamed namespace, so that no code for one instruction set can be linked
// into another.
#pragma once

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

template <class Products, int kRows, int kParts, bool kMinimum, bool kSigned>
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
            __m256i sum[kRows][2];
            GRANARY_UNROLL
            for (int i = 0; i < kRows; ++i) {
                sum[i][0] = sum[i][1] = _mm256_setzero_si256();
                if constexpr (!kMinimum && !kSigned) {
                    const int32_t* negative = in[i][g].negative + part;
                    const int32_t all = kParts == 1 ? negative[0] + negative[1] : negative[0];
                    sum[i][0] = sum[i][1] = _mm256_set1_epi32(all * (1 << offset_bits));
                }
            }
            // One pair of weight vectors at a time: sixteen registers hold no more.
            GRANARY_UNROLL
            for (int q = 0; q < kQuads; ++q) {
                __m256i w[2];
                GRANARY_UNROLL
                for (int h = 0; h < 2; ++h) {
                    w[h] = _mm256_load_si256(reinterpret_cast<const __m256i*>(weights[q][8 * h]));
                    if constexpr (kSigned)
                        w[h] = _mm256_xor_si256(w[h], _mm256_set1_epi8(static_cast<char>(0x80)));
                }
                GRANARY_UNROLL
                for (int i = 0; i < kRows; ++i) {
                    int four;
                    __builtin_memcpy(&four, in[i][g].code + part * 16 + 4 * q, sizeof four);
                    const __m256i codes = _mm256_set1_epi32(four);
                    GRANARY_UNROLL
                    for (int h = 0; h < 2; ++h)
                        sum[i][h] = kSigned ? Products::dot4(sum[i][h], _mm256_abs_epi8(w[h]),
                                                             _mm256_sign_epi8(codes, w[h]))
                                            : Products::dot4(sum[i][h], w[h], codes);
                }
            }
            GRANARY_UNROLL
            for (int i = 0; i < kRows; ++i) {
                const __m256 in_scale = _mm256_set1_ps(in[i][g].scale);
                GRANARY_UNROLL
                for (int h = 0; h < 2; ++h) {
                    const __m256 both =
                        _mm256_mul_ps(_mm256_load_ps(tile.scale[scales] + 8 * h), in_scale);
                    acc[i][h] = _mm256_fmadd_ps(both, _mm256_cvtepi32_ps(sum[i][h]), acc[i][h]);
                    if constexpr (kMinimum) {
                        const float total =
                            kParts == 1
                                ? in[i][g].sum
                                : in[i][g].scale * static_cast<float>(-in[i][g].negative[part]);
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

template <class Products, int kParts, bool kMinimum, bool kSigned>
void dot_all(const Tile& tile, unsigned offset_bits, uint32_t first_group, uint32_t groups,
             std::span<const std::byte* const> activations, float* out, size_t stride,
             uint32_t rows, bool add) {
    size_t i = 0;
    for (; i + 4 <= activations.size(); i += 4)
        dot_rows<Products, 4, kParts, kMinimum, kSigned>(tile, offset_bits, first_group, groups,
                                                         &activations[i], out + i * stride, stride,
                                                         rows, add);
    for (; i < activations.size(); ++i)
        dot_rows<Products, 1, kParts, kMinimum, kSigned>(tile, offset_bits, first_group, groups,
                                                         &activations[i], out + i * stride, stride,
                                                         rows, add);
}

template <class Products>
void dot(const BlockFormat& format, const Tile& tile, uint32_t first_group, uint32_t groups,
         std::span<const std::byte* const> activations, float* out, size_t stride, uint32_t rows,
         bool add) {
    auto* function = dot_all<Products, 1, false, false>;
    if (format.has_minimum)
        function =
            format.halves ? dot_all<Products, 2, true, false> : dot_all<Products, 1, true, false>;
    else if (format.halves)
        function = dot_all<Products, 2, false, false>;
    else if (Products::kSigned && format.largest_code > 127)
        function = dot_all<Products, 1, false, Products::kSigned>;
    function(tile, format.offset_bits, first_group, groups, activations, out, stride, rows, add);
}

}  // namespace
}  // namespace granary::gpu::host

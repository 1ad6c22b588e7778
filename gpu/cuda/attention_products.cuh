// SPDX-License-Identifier: GPL-3.0-or-later
// What a warp of decode attention does with a piece of K or V in shared memory. Cells are the M
// dimension of the products and query rows the N dimension, so that codes go from shared memory to
// operand registers and eight query rows cost what one does:
//
//   scores[cells, rows] = K[cells, dims] Q^T        codes as f16, times K's scale afterwards
//   sums[dims, rows] = V^T[dims, cells] weights     codes as f16 times V's scale
//
// A matrix load of 8 rows x 16 bytes gives a thread bytes 4t .. 4t + 3 of cell g, or, transposed,
// bytes 2g, 2g + 1 of cells 2t and 2t + 1: two, four or eight values of each format.
#pragma once

#include "gpu/cuda/attention_cells.cuh"
#include "gpu/cuda/attention_codes.cuh"
#include "gpu/cuda/softmax.cuh"

namespace granary::gpu::cuda {
namespace {

// Scores of a step's cells, as products leave them; weights, as products take them.
template <uint32_t kStep, uint32_t kRowTiles>
using StepScores = float[kStep / 16][kRowTiles][4];
template <uint32_t kStep, uint32_t kRowTiles>
using StepWeights = uint32_t[kStep / 16][kRowTiles][2];
// Queries as operands of each step of 16 dims, in the order in which K's codes are widened.
template <uint32_t kDim, uint32_t kRowTiles>
using QueryOperands = uint2[kDim / 16][kRowTiles][32];

// Column d of 16 that is value j (of 4) of a thread's query operand.
template <KvCodes kCodes>
__device__ __forceinline__ uint32_t query_column(uint32_t t, uint32_t j) {
    if constexpr (kCodes == KvCodes::f16) return 2 * t + j % 2 + j / 2 * 8;
    if constexpr (kCodes == KvCodes::int8) return 4 * t + j;
    // Steps of a 4-bit group are its low and its high nibbles: 16 neighbours each.
    return 4 * t + j % 2 * 2 + j / 2;
}

// Which value (of 4) of which thread's operand a column of 16 is.
struct QueryPlace {
    uint32_t t, j;
};
template <KvCodes kCodes>
__device__ __forceinline__ QueryPlace query_place(uint32_t column) {
    if constexpr (kCodes == KvCodes::f16) return {column % 8 / 2, column / 8 * 2 + column % 2};
    if constexpr (kCodes == KvCodes::int8) return {column / 4, column % 4};
    return {column / 4, column % 2 * 2 + column % 4 / 2};
}

// score (+)= K Q^T over one piece.
template <class K, uint32_t kRowTiles, uint32_t kPiece>
__device__ __forceinline__ void score_piece(const std::byte* piece,
                                            const QueryOperands<K::kDim, kRowTiles>& queries,
                                            StepScores<K::kStep, kRowTiles>& score) {
    const uint32_t lane = threadIdx.x % 32, g = lane / 4;
    const uint32_t address = shared_address(piece);
    const uint32_t row = lane % 16, chunk = lane / 16;
    constexpr uint32_t kFirst = kPiece / K::kParts * K::kTiles;
    if constexpr (K::kCodes == KvCodes::f16) {
        // Two sums that take turns, where no other tile lets a product wait for the one before it.
        constexpr uint32_t kSums = K::kTiles == 1 ? 2 : 1;
        float second[kRowTiles][4] = {};
#pragma unroll
        for (uint32_t s = 0; s < K::kWidth / 32; ++s) {
#pragma unroll
            for (uint32_t m = 0; m < K::kTiles; ++m) {
                uint32_t a[4];
                load_matrices(a, address + K::place(m * 16 + row, 2 * s + chunk));
#pragma unroll
                for (uint32_t n = 0; n < kRowTiles; ++n) {
                    const uint2 q = queries[kPiece % K::kParts * (K::kWidth / 32) + s][n][lane];
                    mma_16x8x16(s % kSums == 1 ? second[n] : score[kFirst + m][n], a, q.x, q.y);
                }
            }
        }
        if constexpr (kSums == 2)
#pragma unroll
            for (uint32_t n = 0; n < kRowTiles; ++n)
#pragma unroll
                for (uint32_t e = 0; e < 4; ++e) score[kFirst][n][e] += second[n][e];
    } else {
        // Two chunks of 16 bytes a load: half a group of int8, two groups of int4. Tiles of int4
        // take turns; with int8 the registers would not reach.
        constexpr uint32_t kTurns = K::kCodes == KvCodes::int4 ? K::kTiles : 1;
#pragma unroll
        for (uint32_t tile = 0; tile < K::kTiles; tile += kTurns) {
            float sum[kTurns][kRowTiles][4] = {};
#pragma unroll
            for (uint32_t i = 0; i < K::kWidth / 16; i += 2) {
                uint32_t w[kTurns][4];
#pragma unroll
                for (uint32_t m = 0; m < kTurns; ++m) {
                    load_matrices(w[m], address + K::place((tile + m) * 16 + row, i + chunk));
                    if constexpr (K::kCodes == KvCodes::int8)
#pragma unroll
                        for (uint32_t j = 0; j < 4; ++j) w[m][j] ^= 0x80808080;
                }
#pragma unroll
                for (uint32_t j = 0; j < 2; ++j) {
                    constexpr uint32_t kSteps = K::kCodes == KvCodes::int8 ? 1 : 2;  // of a chunk
#pragma unroll
                    for (uint32_t s = 0; s < kSteps; ++s) {
                        uint2 q[kRowTiles];
#pragma unroll
                        for (uint32_t n = 0; n < kRowTiles; ++n)
                            q[n] = queries[kSteps * (i + j) + s][n][lane];
#pragma unroll
                        for (uint32_t m = 0; m < kTurns; ++m) {
                            const uint32_t x = w[m][2 * j], y = w[m][2 * j + 1];
                            uint32_t a[4];
                            if constexpr (K::kCodes == KvCodes::int8) {
                                a[0] = widen_int8<0, 1>(x), a[1] = widen_int8<0, 1>(y);
                                a[2] = widen_int8<2, 3>(x), a[3] = widen_int8<2, 3>(y);
                            } else if (s == 0) {
                                a[0] = widen_low(x), a[1] = widen_low(y);
                                a[2] = widen_low(x >> 8), a[3] = widen_low(y >> 8);
                            } else {
                                a[0] = widen_high(x), a[1] = widen_high(y);
                                a[2] = widen_high(x >> 8), a[3] = widen_high(y >> 8);
                            }
#pragma unroll
                            for (uint32_t n = 0; n < kRowTiles; ++n)
                                mma_16x8x16(sum[m][n], a, q[n].x, q[n].y);
                        }
                    }
                    const uint32_t part = (i + j) * (K::kCodes == KvCodes::int8 ? 16 : 32);
                    if (K::kCodes == KvCodes::int8 && (i + j) % 4 != 3) continue;
#pragma unroll
                    for (uint32_t m = 0; m < kTurns; ++m)
#pragma unroll
                        for (uint32_t half = 0; half < 2; ++half) {
                            const float scale = __half2float(reinterpret_cast<const __half*>(
                                piece + kDecodePiece +
                                ((tile + m) * 16 + g + half * 8) *
                                    K::kScaleBytes)[part / K::kGroup]);
#pragma unroll
                            for (uint32_t n = 0; n < kRowTiles; ++n)
#pragma unroll
                                for (uint32_t e = 2 * half; e < 2 * half + 2; ++e) {
                                    score[kFirst + tile + m][n][e] += sum[m][n][e] * scale;
                                    sum[m][n][e] = 0;
                                }
                        }
                }
            }
        }
    }
}

// A warp's results so far: of this thread's rows 2t, 2t + 1 of each tile the maximum of the
// scores, the sum of the weights of the cells that the thread has had, and the sums of V.
template <uint32_t kDim, uint32_t kRowTiles>
struct RunningSums {
    float out[kDim / 16][kRowTiles][4];
    float maximum[kRowTiles][2], sum[kRowTiles][2];

    __device__ RunningSums() {
#pragma unroll
        for (uint32_t n = 0; n < kRowTiles; ++n) {
#pragma unroll
            for (uint32_t e = 0; e < 2; ++e) maximum[n][e] = -INFINITY, sum[n][e] = 0;
#pragma unroll
            for (auto& dims : out)
#pragma unroll
                for (float& x : dims[n]) x = 0;
        }
    }

    // Scores of cells `first` .. become weights 2^(score - maximum), transposed to operands; those
    // behind `newest`, the last cell that a row sees, none.
    template <uint32_t kStep>
    __device__ void weigh(StepScores<kStep, kRowTiles>& score, uint32_t first,
                          const uint32_t (&newest)[kRowTiles][2],
                          StepWeights<kStep, kRowTiles>& weight) {
        const uint32_t g = threadIdx.x % 32 / 4;
        float factor[kRowTiles][2];
        bool changed = false;
#pragma unroll
        for (uint32_t n = 0; n < kRowTiles; ++n) {
#pragma unroll
            for (uint32_t e = 0; e < 2; ++e) {
                if (first + kStep > newest[n][e] + 1) {
#pragma unroll
                    for (uint32_t i = 0; i < kStep / 8; ++i)
                        if (first + i * 8 + g > newest[n][e])
                            score[i / 2][n][i % 2 * 2 + e] = -INFINITY;
                }
                float top = maximum[n][e];
#pragma unroll
                for (uint32_t m = 0; m < kStep / 16; ++m)
                    top = fmaxf(top, fmaxf(score[m][n][e], score[m][n][2 + e]));
#pragma unroll
                for (uint32_t distance = 4; distance < 32; distance *= 2)
                    top = fmaxf(top, __shfl_xor_sync(~0u, top, distance));
                const float from = top == -INFINITY ? 0 : top;
                factor[n][e] = exp2_fast(maximum[n][e] - from);
                changed |= top != maximum[n][e];
                maximum[n][e] = top;
                float total = 0;
#pragma unroll
                for (uint32_t m = 0; m < kStep / 16; ++m)
#pragma unroll
                    for (uint32_t half = 0; half < 2; ++half) {
                        float& s = score[m][n][2 * half + e];
                        s = exp2_fast(s - from);
                        total += s;
                    }
                sum[n][e] = fmaf(sum[n][e], factor[n][e], total);
            }
#pragma unroll
            for (uint32_t m = 0; m < kStep / 16; ++m)
#pragma unroll
                for (uint32_t half = 0; half < 2; ++half)
                    weight[m][n][half] = transposed(
                        bits(__floats2half2_rn(score[m][n][2 * half], score[m][n][2 * half + 1])));
        }
        if (!__any_sync(~0u, changed)) return;
#pragma unroll
        for (auto& dims : out)
#pragma unroll
            for (uint32_t n = 0; n < kRowTiles; ++n)
#pragma unroll
                for (uint32_t j = 0; j < 4; ++j) dims[n][j] *= factor[n][j % 2];
    }

    // out += V^T weights over one piece.
    template <class V, uint32_t kPiece>
    __device__ void sum_piece(const std::byte* piece,
                              const StepWeights<V::kStep, kRowTiles>& weight) {
        const uint32_t lane = threadIdx.x % 32, t = lane % 4;
        const uint32_t address = shared_address(piece);
        constexpr uint32_t kFirst = kPiece / V::kParts * V::kTiles;
#pragma unroll
        for (uint32_t m = 0; m < V::kTiles; ++m) {
            const uint32_t(&w)[kRowTiles][2] = weight[kFirst + m];
            if constexpr (V::kCodes == KvCodes::f16) {
                const uint32_t row = m * 16 + lane / 16 * 8 + lane % 8, chunk = lane / 8 % 2;
#pragma unroll
                for (uint32_t i = 0; i < V::kWidth / 32; ++i) {
                    uint32_t a[4];
                    load_matrices_transposed(a, address + V::place(row, 2 * i + chunk));
                    add_sums(out[kPiece % V::kParts * (V::kWidth / 32) + i], a, w);
                }
            } else {
                const uint32_t row = m * 16 + lane / 8 % 2 * 8 + lane % 8, chunk = lane / 16;
                constexpr uint32_t kGroups = kDim / V::kGroup, kWords = (kGroups + 1) / 2;
                // Scales of cells 2t, 2t + 1, 2t + 8, 2t + 9.
                uint32_t scale[4][kWords];
#pragma unroll
                for (uint32_t c = 0; c < 4; ++c) {
                    const std::byte* const at =
                        piece + kDecodePiece +
                        (m * 16 + 2 * t + c % 2 + c / 2 * 8) * V::kScaleBytes;
                    if constexpr (V::kScaleBytes == 2)
                        scale[c][0] = *reinterpret_cast<const uint16_t*>(at);
                    else
#pragma unroll
                        for (uint32_t j = 0; j < kWords; ++j)
                            scale[c][j] = reinterpret_cast<const uint32_t*>(at)[j];
                }
#pragma unroll
                for (uint32_t i = 0; i < V::kWidth / 16; i += 2) {
                    uint32_t x[4];
                    load_matrices_transposed(x, address + V::place(row, i + chunk));
                    if constexpr (V::kCodes == KvCodes::int8)
#pragma unroll
                        for (uint32_t j = 0; j < 4; ++j) x[j] ^= 0x80808080;
#pragma unroll
                    for (uint32_t j = 0; j < 2; ++j) {
                        const uint32_t part =
                            (i + j) * (V::kCodes == KvCodes::int8 ? 16 : 32) / V::kGroup;
                        const uint32_t low = pair_of(scale[0], scale[1], part);
                        const uint32_t high = pair_of(scale[2], scale[3], part);
                        const uint32_t y = x[2 * j], z = x[2 * j + 1];
                        if constexpr (V::kCodes == KvCodes::int8) {
                            const uint32_t a[4] = {
                                times(widen_int8<0, 2>(y), low), times(widen_int8<1, 3>(y), low),
                                times(widen_int8<0, 2>(z), high), times(widen_int8<1, 3>(z), high)};
                            add_sums(out[i + j], a, w);
                        } else {
                            const uint32_t a[4] = {
                                times(widen_low(y), low), times(widen_low(y >> 8), low),
                                times(widen_low(z), high), times(widen_low(z >> 8), high)};
                            const uint32_t b[4] = {
                                times(widen_high(y), low), times(widen_high(y >> 8), low),
                                times(widen_high(z), high), times(widen_high(z >> 8), high)};
                            add_sums(out[2 * (i + j)], a, w);
                            add_sums(out[2 * (i + j) + 1], b, w);
                        }
                    }
                }
            }
        }
    }
    __device__ static void add_sums(float (&sums)[kRowTiles][4], const uint32_t (&a)[4],
                                    const uint32_t (&weight)[kRowTiles][2]) {
#pragma unroll
        for (uint32_t n = 0; n < kRowTiles; ++n)
            mma_16x8x16(sums[n], a, weight[n][0], weight[n][1]);
    }
};

}  // namespace
}  // namespace granary::gpu::cuda

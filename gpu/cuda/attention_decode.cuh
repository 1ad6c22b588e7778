// SPDX-License-Identifier: GPL-3.0-or-later
// Decode attention by tensor cores, K and V read as they are stored.
//
// A block takes the query rows of one K/V head and one cut of 512 cells at a time; each of its
// eight warps takes 64 cells of it, alone until its sums are ready. Cells are the M dimension of
// the products and query rows the N dimension, so that codes go from shared memory to operand
// registers and eight query rows cost what one does:
//
//   scores[cells, rows] = K[cells, dims] Q^T        codes as f16, times K's scale afterwards
//   sums[dims, rows] = V^T[dims, cells] weights     codes as f16 times V's scale
//
// Codes come through a ring of two 4 KB pieces per warp, copied by the warp itself: one that is
// spent makes way for the next but one. A matrix load of 8 rows x 16 bytes gives a thread bytes 4t
// .. 4t + 3 of cell g, or, transposed, bytes 2g, 2g + 1 of cells 2t and 2t + 1: two, four or eight
// values of each format.
//
// Bytes: K and V once for each 8 or 16 query rows. Work: 4 heads dim operations a cell; f16 8
// operations a byte at a group of 8, 4-bit codes 28, with about three instructions for each two
// codes to widen them.
//
// A block keeps running sums over its cuts, and the last block of a head to end adds up what all
// have left.
#pragma once

#include "gpu/cuda/attention_decode.h"
#include "gpu/cuda/early.cuh"
#include "gpu/cuda/kv_cells.cuh"
#include "gpu/cuda/norm_decode.cuh"
#include "gpu/cuda/read_once.cuh"
#include "gpu/cuda/rotate.cuh"
#include "gpu/cuda/softmax.cuh"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kWarps = kDecodeThreads / 32, kWarpCells = kDecodeCut / kWarps;
constexpr uint32_t kPieceBytes = 4096, kSlotBytes = kPieceBytes + 512, kSlots = 2;
constexpr uint32_t kSlice = 64, kSliceRow = 68;  // dims that warps add at a time, and their stride

// How the codes of a head are cut into pieces that fit a slot: kCells cells, kWidth bytes of each.
template <KvCodes kCodes, uint32_t kDim>
struct Pieces {
    static constexpr uint32_t kRow = kCodes == KvCodes::f16    ? kDim * 2
                                     : kCodes == KvCodes::int8 ? kDim
                                                               : kDim / 2;
    static constexpr uint32_t kGroup = kCodes == KvCodes::int8 ? 64 : 32;
    static constexpr uint32_t kScaleBytes = kCodes == KvCodes::f16 ? 0 : kDim / kGroup * 2;
    static constexpr uint32_t kWidth = kRow < 256 ? kRow : 256;
    static constexpr uint32_t kParts = kRow / kWidth;
    static constexpr uint32_t kCells =
        kPieceBytes / kWidth < kWarpCells ? kPieceBytes / kWidth : kWarpCells;
    static constexpr uint32_t kCount = kWarpCells / kCells * kParts;
    static constexpr uint32_t kTiles = kCells / 16;  // of 16 cells

    // Where 16 bytes of a row lie in a slot: any 8 rows' are in different banks.
    __device__ static uint32_t place(uint32_t row, uint32_t chunk) {
        if constexpr (kWidth >= 128)
            return row * kWidth + (chunk ^ row % 8) * 16;
        else
            return row * kWidth + (chunk ^ row / (128 / kWidth) % (kWidth / 16)) * 16;
    }
};

template <uint32_t kBytes>
__device__ __forceinline__ void copy_scales(std::byte* to, const std::byte* from) {
    if constexpr (kBytes == 2)
        *reinterpret_cast<uint16_t*>(to) = *reinterpret_cast<const uint16_t*>(from);
    else if constexpr (kBytes == 16)
        copy_16(shared_address(to), from);
    else
        copy_small<kBytes>(shared_address(to), from);
}

// ---- codes to f16

// Bytes kLow and kHigh of `word` (as numbers from 0 to 255, offset by 128) as they are.
template <uint32_t kLow, uint32_t kHigh>
__device__ __forceinline__ uint32_t widen_int8(uint32_t word) {
    const uint32_t raised = __byte_perm(word, 0x64646464, 0x4040 | kLow | kHigh << 8);
    return bits(__hsub2(as_half2(raised), as_half2(0x64806480)));  // 1024 + 128
}
// Nibbles of bytes 0 and 2: the low ones, the high ones. 0x6400 + n is 1024 + n.
__device__ __forceinline__ uint32_t widen_low(uint32_t word) {
    const uint32_t raised = (word & 0x000f000f) ^ 0x64086408;
    return bits(__hsub2(as_half2(raised), as_half2(0x64086408)));
}
__device__ __forceinline__ uint32_t widen_high(uint32_t word) {
    const uint32_t raised = (word & 0x00f000f0) ^ 0x64806480;
    return bits(__hfma2(as_half2(raised), as_half2(0x2c002c00), as_half2(0xd480d480)));
}
__device__ __forceinline__ uint32_t times(uint32_t a, uint32_t b) {
    return bits(__hmul2(as_half2(a), as_half2(b)));
}
// Halves of the same place in two words.
__device__ __forceinline__ uint32_t pair_of(const uint32_t* a, const uint32_t* b, uint32_t half) {
    return __byte_perm(a[half / 2], b[half / 2], half % 2 ? 0x7632 : 0x5410);
}

// ---- one K/V head and its rows

template <KvCodes kKCodes, KvCodes kVCodes, uint32_t kDim, uint32_t kRowTiles>
struct Decoder {
    using K = Pieces<kKCodes, kDim>;
    using V = Pieces<kVCodes, kDim>;
    static constexpr uint32_t kRows = 8 * kRowTiles;
    static constexpr uint32_t kPieces = K::kCount + V::kCount;

    struct Shared {
        alignas(128) std::byte slots[kWarps][kSlots][kSlotBytes];
        uint2 queries[kDim / 16][kRowTiles][32];  // operands of each step of 16 dims
        float slice[kWarps][8][kSliceRow];
        float maximum[kWarps][kRows], sum[kWarps][kRows];
        alignas(128) int32_t place[31];  // of a row among [n, heads]; -1: no such row
        bool last;
    };
    static_assert(sizeof(Shared) == decode_shared_bytes(kDim, kRowTiles));

    // Where a warp's 64 cells of a cut lie; count 0: none are stored.
    struct Cells {
        const std::byte *k, *k_scales, *v, *v_scales;
        uint32_t first, count;
    };

    const AttentionDecode& job;
    Shared& shared;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const uint32_t group = job.heads / job.kv_heads;
    const uint32_t head = blockIdx.y % job.kv_heads, first_row = blockIdx.y / job.kv_heads * kRows;
    const std::byte* const base = kv_base(job.kv);
    const uint32_t first_cell = job.kv.place->first_cell + job.first_token;
    const uint32_t end = first_cell + job.n;  // cells that the last token sees
    const ReadOnce once{};
    uint32_t slot = 0;

    // A row's place among [n, heads].
    __device__ uint32_t row_of(uint32_t row) const {
        const uint32_t r = first_row + row;
        return r / group * job.heads + head * group + r % group;
    }
    __device__ bool is_row(uint32_t row) const { return first_row + row < job.n * group; }

    __device__ Cells cells_of(uint32_t cut) const {
        Cells cells{};
        cells.first = cut * kDecodeCut + warp * kWarpCells;
        cells.count = end > cells.first ? min(kWarpCells, end - cells.first) : 0;
        const auto at = [&](size_t offset, size_t row) {
            return base + cell_offset(job.kv, offset, row, cells.first);
        };
        const KvPart &k = job.kv.k, &v = job.kv.v;
        cells.k = at(k.code_offset, k.code_row) + head * K::kRow;
        cells.v = at(v.code_offset, v.code_row) + head * V::kRow;
        cells.k_scales = at(k.scale_offset, k.scale_row) + head * K::kScaleBytes;
        cells.v_scales = at(v.scale_offset, v.scale_row) + head * V::kScaleBytes;
        return cells;
    }

    // Begins the copy of a piece. Cells after the last one that is stored repeat it.
    template <class P>
    __device__ void bring(uint32_t to_slot, const std::byte* codes, size_t code_row,
                          const std::byte* scales, size_t scale_row, uint32_t count,
                          uint32_t piece) {
        std::byte* const to = shared.slots[warp][to_slot];
        const uint32_t to_address = shared_address(to);
        const uint32_t first = piece / P::kParts * P::kCells;
        constexpr uint32_t kChunks = P::kWidth / 16, kStep = 32 / kChunks;
        const uint32_t chunk = lane % kChunks, row = lane / kChunks;
        const std::byte* from =
            codes + (first + row) * code_row + piece % P::kParts * P::kWidth + chunk * 16;
        if (count == kWarpCells) {
            const size_t stride = kStep * code_row;
#pragma unroll
            for (uint32_t i = 0; i < P::kCells / kStep; ++i, from += stride)
                once.copy_16(to_address + P::place(row + i * kStep, chunk), from);
        } else {
#pragma unroll
            for (uint32_t i = 0; i < P::kCells / kStep; ++i) {
                const uint32_t cell = first + row + i * kStep;
                once.copy_16(
                    to_address + P::place(row + i * kStep, chunk),
                    from + (i * kStep) * code_row - (cell - min(cell, count - 1)) * code_row);
            }
        }
        if constexpr (P::kScaleBytes != 0) {
#pragma unroll
            for (uint32_t i = 0; i < (P::kCells + 31) / 32; ++i) {
                const uint32_t row = i * 32 + lane;
                if (row < P::kCells)
                    copy_scales<P::kScaleBytes>(to + kPieceBytes + row * P::kScaleBytes,
                                                scales + min(first + row, count - 1) * scale_row);
            }
        }
    }
    __device__ void bring(uint32_t to_slot, const Cells& cells, uint32_t piece) {
        if (cells.count) {
            if (piece < K::kCount)
                bring<K>(to_slot, cells.k, job.kv.k.code_row, cells.k_scales, job.kv.k.scale_row,
                         cells.count, piece);
            else
                bring<V>(to_slot, cells.v, job.kv.v.code_row, cells.v_scales, job.kv.v.scale_row,
                         cells.count, piece - K::kCount);
        }
        copies_commit();
    }
    // Towards the second cache, which this step's own cells do not mind: the ring holds a quarter
    // of a cut at most, and in a short context nobody else hides what memory takes.
    template <class P>
    __device__ void prefetch(const std::byte* codes, size_t code_row, uint32_t count) const {
        constexpr uint32_t kLines = (P::kRow + 127) / 128;
#pragma unroll
        for (uint32_t i = 0; i < kWarpCells * kLines / 32; ++i) {
            const uint32_t line = i * 32 + lane, row = line / kLines;
            if (row < count)
                asm volatile(
                    "prefetch.global.L2 [%0];" ::"l"(codes + row * code_row + line % kLines * 128));
        }
    }
    // The next piece is there.
    __device__ const std::byte* next_piece() const {
        copies_wait<kSlots - 1>();
        __syncwarp();
        return shared.slots[warp][slot];
    }
    // It is not needed any more: the next but one takes its place.
    __device__ void spend_piece(const Cells& cells, const Cells& later, uint32_t piece) {
        __syncwarp();
        if (piece + kSlots < kPieces)
            bring(slot, cells, piece + kSlots);
        else
            bring(slot, later, piece + kSlots - kPieces);
        slot = (slot + 1) % kSlots;
    }

    // Rows as operands: dims in the order in which K's codes are widened.
    __device__ void load_queries() {
        for (uint32_t i = threadIdx.x; i < kDim / 16 * kRowTiles * 32; i += kDecodeThreads) {
            const uint32_t step = i / 32 / kRowTiles, tile = i / 32 % kRowTiles;
            const uint32_t row = tile * 8 + g;
            uint32_t d[4];
            for (uint32_t j = 0; j < 4; ++j) {
                if constexpr (kKCodes == KvCodes::f16)
                    d[j] = 2 * t + j % 2 + j / 2 * 8;
                else if constexpr (kKCodes == KvCodes::int8)
                    d[j] = 4 * t + j;
                else
                    d[j] = 4 * t + j % 2 * 2 + j / 2;
            }
            // Steps of a 4-bit group are its low and its high nibbles: 16 neighbours each.
            float value[4] = {};
            if (is_row(row))
                for (uint32_t j = 0; j < 4; ++j)
                    value[j] = job.q[size_t{row_of(row)} * kDim + step * 16 + d[j]] * job.scale;
            shared.queries[step][tile][lane] =
                make_uint2(pack_half2(value[0], value[1]), pack_half2(value[2], value[3]));
        }
        __syncthreads();
    }

    using Scores = float[kWarpCells / 16][kRowTiles][4];

    // score (+)= K Q^T over one piece.
    template <uint32_t kPiece>
    __device__ void score_piece(const std::byte* piece, Scores& score) const {
        const uint32_t address = shared_address(piece);
        const uint32_t row = lane % 16, chunk = lane / 16;
        constexpr uint32_t kFirst = kPiece / K::kParts * K::kTiles;
        if constexpr (kKCodes == KvCodes::f16) {
#pragma unroll
            for (uint32_t s = 0; s < K::kWidth / 32; ++s) {
#pragma unroll
                for (uint32_t m = 0; m < K::kTiles; ++m) {
                    uint32_t a[4];
                    load_matrices(a, address + K::place(m * 16 + row, 2 * s + chunk));
#pragma unroll
                    for (uint32_t n = 0; n < kRowTiles; ++n) {
                        const uint2 q =
                            shared.queries[kPiece % K::kParts * (K::kWidth / 32) + s][n][lane];
                        mma_16x8x16(score[kFirst + m][n], a, q.x, q.y);
                    }
                }
            }
        } else {
            // Two chunks of 16 bytes a load: half a group of int8, two groups of int4. Tiles of
            // int4 take turns, so that no product waits for the one before it; with int8 the
            // registers would not reach.
            constexpr uint32_t kTurns = kKCodes == KvCodes::int4 ? K::kTiles : 1;
#pragma unroll
            for (uint32_t tile = 0; tile < K::kTiles; tile += kTurns) {
                float sum[kTurns][kRowTiles][4] = {};
#pragma unroll
                for (uint32_t i = 0; i < K::kWidth / 16; i += 2) {
                    uint32_t w[kTurns][4];
#pragma unroll
                    for (uint32_t m = 0; m < kTurns; ++m) {
                        load_matrices(w[m], address + K::place((tile + m) * 16 + row, i + chunk));
                        if constexpr (kKCodes == KvCodes::int8)
#pragma unroll
                            for (uint32_t j = 0; j < 4; ++j) w[m][j] ^= 0x80808080;
                    }
#pragma unroll
                    for (uint32_t j = 0; j < 2; ++j) {
                        constexpr uint32_t kSteps = kKCodes == KvCodes::int8 ? 1 : 2;  // of a chunk
#pragma unroll
                        for (uint32_t s = 0; s < kSteps; ++s) {
                            uint2 q[kRowTiles];
#pragma unroll
                            for (uint32_t n = 0; n < kRowTiles; ++n)
                                q[n] = shared.queries[kSteps * (i + j) + s][n][lane];
#pragma unroll
                            for (uint32_t m = 0; m < kTurns; ++m) {
                                const uint32_t x = w[m][2 * j], y = w[m][2 * j + 1];
                                uint32_t a[4];
                                if constexpr (kKCodes == KvCodes::int8) {
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
                        const uint32_t part = (i + j) * (kKCodes == KvCodes::int8 ? 16 : 32);
                        if (kKCodes == KvCodes::int8 && (i + j) % 4 != 3) continue;
#pragma unroll
                        for (uint32_t m = 0; m < kTurns; ++m)
#pragma unroll
                            for (uint32_t e = 0; e < 4; ++e) {
                                const float scale = __half2float(reinterpret_cast<const __half*>(
                                    piece + kPieceBytes +
                                    ((tile + m) * 16 + g + e / 2 * 8) *
                                        K::kScaleBytes)[part / K::kGroup]);
#pragma unroll
                                for (uint32_t n = 0; n < kRowTiles; ++n) {
                                    score[kFirst + tile + m][n][e] += sum[m][n][e] * scale;
                                    sum[m][n][e] = 0;
                                }
                            }
                    }
                }
            }
        }
    }

    using Weights = uint32_t[kWarpCells / 16][kRowTiles][2];

    // Scores become weights 2^(score - maximum), transposed to operands. Of this thread's rows
    // 2t, 2t + 1 of each tile; maximum and sum are running ones, factor what older results are to
    // be multiplied by.
    __device__ void weigh(Scores& score, const Cells& cells, Weights& weight,
                          float (&maximum)[kRowTiles][2], float (&sum)[kRowTiles][2],
                          float (&factor)[kRowTiles][2]) const {
#pragma unroll
        for (uint32_t n = 0; n < kRowTiles; ++n) {
#pragma unroll
            for (uint32_t e = 0; e < 2; ++e) {
                float top = -INFINITY;
                if (cells.first + kWarpCells > first_cell + 1) {  // some rows do not see them all
                    const uint32_t row = n * 8 + 2 * t + e;
                    const uint32_t last = min(first_cell + (first_row + row) / group, end - 1);
#pragma unroll
                    for (uint32_t m = 0; m < kWarpCells / 16; ++m)
#pragma unroll
                        for (uint32_t half = 0; half < 2; ++half)
                            if (cells.first + m * 16 + g + 8 * half > last)
                                score[m][n][2 * half + e] = -INFINITY;
                }
#pragma unroll
                for (uint32_t m = 0; m < kWarpCells / 16; ++m)
                    top = fmaxf(top, fmaxf(score[m][n][e], score[m][n][2 + e]));
                for (uint32_t distance = 4; distance < 32; distance *= 2)
                    top = fmaxf(top, __shfl_xor_sync(~0u, top, distance));
                top = fmaxf(top, maximum[n][e]);
                const float from = top == -INFINITY ? 0 : top;
                float total = 0;
#pragma unroll
                for (uint32_t m = 0; m < kWarpCells / 16; ++m)
#pragma unroll
                    for (uint32_t half = 0; half < 2; ++half) {
                        float& s = score[m][n][2 * half + e];
                        s = exp2_fast(s - from);
                        total += s;
                    }
                for (uint32_t distance = 4; distance < 32; distance *= 2)
                    total += __shfl_xor_sync(~0u, total, distance);
                factor[n][e] = exp2_fast(maximum[n][e] - from);
                maximum[n][e] = top;
                sum[n][e] = fmaf(sum[n][e], factor[n][e], total);
            }
#pragma unroll
            for (uint32_t m = 0; m < kWarpCells / 16; ++m)
#pragma unroll
                for (uint32_t half = 0; half < 2; ++half)
                    weight[m][n][half] = transposed(
                        bits(__floats2half2_rn(score[m][n][2 * half], score[m][n][2 * half + 1])));
        }
    }

    using Sums = float[kDim / 16][kRowTiles][4];

    // out += V^T weights over one piece.
    template <uint32_t kPiece>
    __device__ void sum_piece(const std::byte* piece, const Weights& weight, Sums& out) const {
        const uint32_t address = shared_address(piece);
        constexpr uint32_t kFirst = kPiece / V::kParts * V::kTiles;
#pragma unroll
        for (uint32_t m = 0; m < V::kTiles; ++m) {
            const uint32_t(&w)[kRowTiles][2] = weight[kFirst + m];
            if constexpr (kVCodes == KvCodes::f16) {
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
                        piece + kPieceBytes + (m * 16 + 2 * t + c % 2 + c / 2 * 8) * V::kScaleBytes;
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
                    if constexpr (kVCodes == KvCodes::int8)
#pragma unroll
                        for (uint32_t j = 0; j < 4; ++j) x[j] ^= 0x80808080;
#pragma unroll
                    for (uint32_t j = 0; j < 2; ++j) {
                        const uint32_t part =
                            (i + j) * (kVCodes == KvCodes::int8 ? 16 : 32) / V::kGroup;
                        const uint32_t low = pair_of(scale[0], scale[1], part);
                        const uint32_t high = pair_of(scale[2], scale[3], part);
                        const uint32_t y = x[2 * j], z = x[2 * j + 1];
                        if constexpr (kVCodes == KvCodes::int8) {
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
    __device__ static void add_sums(float (&out)[kRowTiles][4], const uint32_t (&a)[4],
                                    const uint32_t (&weight)[kRowTiles][2]) {
#pragma unroll
        for (uint32_t n = 0; n < kRowTiles; ++n) mma_16x8x16(out[n], a, weight[n][0], weight[n][1]);
    }
    // The dim of out[i][n][2 * half + e].
    __device__ uint32_t dim_of(uint32_t i, uint32_t half) const {
        return i * 16 + (kVCodes == KvCodes::f16 ? g + 8 * half : 2 * g + half);
    }

    // The eight warps' sums, in their order, to the block's partial results.
    __device__ void store(Sums& out, const float (&maximum)[kRowTiles][2],
                          const float (&sum)[kRowTiles][2]) {
        if (g == 0)
            for (uint32_t n = 0; n < kRowTiles; ++n)
                for (uint32_t e = 0; e < 2; ++e) {
                    shared.maximum[warp][n * 8 + 2 * t + e] = maximum[n][e];
                    shared.sum[warp][n * 8 + 2 * t + e] = sum[n][e];
                }
        __syncthreads();
        float* const partial = job.partials + blockIdx.x * job.partial_floats;
        const auto top_of = [&](uint32_t row) {
            float top = -INFINITY;
            for (uint32_t w = 0; w < kWarps; ++w) top = fmaxf(top, shared.maximum[w][row]);
            return top;
        };
        const auto finite = [](float top) { return top == -INFINITY ? 0 : top; };
        if (threadIdx.x < kRows && is_row(threadIdx.x)) {
            const float top = top_of(threadIdx.x);
            float total = 0;
            for (uint32_t w = 0; w < kWarps; ++w)
                total += shared.sum[w][threadIdx.x] *
                         exp2_fast(shared.maximum[w][threadIdx.x] - finite(top));
            reinterpret_cast<float2*>(partial +
                                      size_t{job.n} * job.heads * kDim)[row_of(threadIdx.x)] =
                make_float2(top, total);
        }
#pragma unroll
        for (uint32_t n = 0; n < kRowTiles; ++n) {
            float factor[2];
            for (uint32_t e = 0; e < 2; ++e)
                factor[e] = exp2_fast(maximum[n][e] - finite(top_of(n * 8 + 2 * t + e)));
#pragma unroll
            for (uint32_t first = 0; first < kDim / 16; first += kSlice / 16) {
#pragma unroll
                for (uint32_t i = 0; i < kSlice / 16; ++i)
#pragma unroll
                    for (uint32_t j = 0; j < 4; ++j)
                        shared.slice[warp][2 * t + j % 2][dim_of(i, j / 2)] =
                            out[first + i][n][j] * factor[j % 2];
                __syncthreads();
#pragma unroll
                for (uint32_t half = 0; half < 2; ++half) {
                    static_assert(kDecodeThreads == 4 * kSlice);
                    const uint32_t row = threadIdx.x / kSlice + 4 * half, d = threadIdx.x % kSlice;
                    float total = 0;
#pragma unroll
                    for (uint32_t w = 0; w < kWarps; ++w) total += shared.slice[w][row][d];
                    if (const int32_t at = shared.place[n * 8 + row]; at >= 0)
                        partial[static_cast<uint32_t>(at) * kDim + first * 16 + d] = total;
                }
                __syncthreads();
            }
        }
    }

    // Whether this block is the last of `blocks` with these rows; what they left is visible then.
    __device__ bool is_last(uint32_t blocks) {
        __syncthreads();
        if (blocks == 1) return true;
        if (threadIdx.x == 0) {
            __threadfence();
            uint32_t& finished = job.finished[blockIdx.y];
            shared.last = atomicAdd(&finished, 1) + 1 == blocks;
            if (shared.last) finished = 0;
        }
        __syncthreads();
        __threadfence();
        return shared.last;
    }

    // The partial results of `blocks`, in their order, to values and codes: four dims a thread.
    __device__ void combine(uint32_t blocks) {
        constexpr uint32_t kQuads = kDim / 4;
        auto* const result = reinterpret_cast<float*>(shared.slots);  // [kRows][kDim]
        static_assert(kRows * kDim * sizeof(float) <= sizeof shared.slots);
        const float* const weights = job.partials + size_t{job.n} * job.heads * kDim;
        for (uint32_t i = threadIdx.x; i < kRows * kQuads; i += kDecodeThreads) {
            const int32_t at = shared.place[i / kQuads];
            if (at < 0) continue;
            const auto weight_of = [&](uint32_t block) {
                return __ldcg(
                    reinterpret_cast<const float2*>(weights + block * job.partial_floats) + at);
            };
            float top = -INFINITY;
#pragma unroll 4
            for (uint32_t block = 0; block < blocks; ++block) top = fmaxf(top, weight_of(block).x);
            float4 sum = make_float4(0, 0, 0, 0);
            float total = 0;
#pragma unroll 4
            for (uint32_t block = 0; block < blocks; ++block) {
                const float2 weight = weight_of(block);
                const float4 more = __ldcg(
                    reinterpret_cast<const float4*>(job.partials + block * job.partial_floats) +
                    static_cast<uint32_t>(at) * kQuads + i % kQuads);
                const float factor = exp2_fast(weight.x - top);
                total = fmaf(factor, weight.y, total);
                sum.x = fmaf(factor, more.x, sum.x);
                sum.y = fmaf(factor, more.y, sum.y);
                sum.z = fmaf(factor, more.z, sum.z);
                sum.w = fmaf(factor, more.w, sum.w);
            }
            const float by = 1 / total;
            reinterpret_cast<float4*>(result)[i] =
                make_float4(sum.x * by, sum.y * by, sum.z * by, sum.w * by);
        }
        __syncthreads();
        if constexpr (kVCodes == KvCodes::int4) {
            rotate_in_block(result, kDim, kRows);
            __syncthreads();
        }
        for (uint32_t i = threadIdx.x; i < kRows * kQuads; i += kDecodeThreads) {
            const int32_t place = shared.place[i / kQuads];
            if (place < 0) continue;
            const auto at = static_cast<uint32_t>(place);
            float v[4];
            load_quad(result, i, kRows * kDim, v);
            store_quad(job.values + size_t{at} * kDim, i % kQuads, kDim, v);
            if (job.codes)
                store_decode_codes(job.codes + at / job.heads * job.code_row,
                                   at % job.heads * kQuads + i % kQuads, v);
        }
    }

    template <uint32_t kPiece>
    __device__ void score_pieces(const Cells& cells, const Cells& later, Scores& score) {
        if constexpr (kPiece < K::kCount) {
            const std::byte* const piece = next_piece();
            if (cells.count) score_piece<kPiece>(piece, score);
            spend_piece(cells, later, kPiece);
            score_pieces<kPiece + 1>(cells, later, score);
        }
    }
    template <uint32_t kPiece>
    __device__ void sum_pieces(const Cells& cells, const Cells& later, const Weights& weight,
                               Sums& out) {
        if constexpr (kPiece < V::kCount) {
            const std::byte* const piece = next_piece();
            if (cells.count) sum_piece<kPiece>(piece, weight, out);
            spend_piece(cells, later, K::kCount + kPiece);
            sum_pieces<kPiece + 1>(cells, later, weight, out);
        }
    }

    __device__ void run() {
        const uint32_t cuts = (end + kDecodeCut - 1) / kDecodeCut;
        uint32_t cut = blockIdx.x;
        if (cut >= cuts) return;
        if (threadIdx.x < kRows)
            shared.place[threadIdx.x] =
                is_row(threadIdx.x) ? static_cast<int32_t>(row_of(threadIdx.x)) : -1;
        Cells cells = cells_of(cut);
        // Cells of earlier steps may come before this step's are there.
        const bool old = cells.first + kWarpCells <= job.kv.place->first_cell;
        static_assert(kPieces >= kSlots);
        const auto bring_first = [&] {
            for (uint32_t piece = 0; piece < kSlots; ++piece) bring(piece, cells, piece);
        };
        if (old) bring_first();
        prefetch<K>(cells.k, job.kv.k.code_row, cells.count);
        prefetch<V>(cells.v, job.kv.v.code_row, cells.count);
        wait_for_kernels_ahead();
        if (!old) bring_first();
        load_queries();
        Sums out = {};
        float maximum[kRowTiles][2], sum[kRowTiles][2];
#pragma unroll
        for (uint32_t n = 0; n < kRowTiles; ++n)
#pragma unroll
            for (uint32_t e = 0; e < 2; ++e) maximum[n][e] = -INFINITY, sum[n][e] = 0;
        for (; cut < cuts; cut += gridDim.x) {
            Cells later{};
            if (cut + gridDim.x < cuts) later = cells_of(cut + gridDim.x);
            Scores score = {};
            score_pieces<0>(cells, later, score);
            Weights weight;
            float factor[kRowTiles][2];
            weigh(score, cells, weight, maximum, sum, factor);
            if (cut != blockIdx.x)
#pragma unroll
                for (uint32_t i = 0; i < kDim / 16; ++i)
#pragma unroll
                    for (uint32_t n = 0; n < kRowTiles; ++n)
#pragma unroll
                        for (uint32_t j = 0; j < 4; ++j) out[i][n][j] *= factor[n][j % 2];
            sum_pieces<0>(cells, later, weight, out);
            // Not earlier: what the next kernels bring would stand before these cells.
            if (cut + gridDim.x >= cuts) let_next_begin();
            cells = later;
        }
        copies_wait<0>();
        store(out, maximum, sum);
        const uint32_t blocks = min(gridDim.x, cuts);
        if (is_last(blocks)) combine(blocks);
    }
};

template <KvCodes kK, KvCodes kV, uint32_t kDim, uint32_t kRowTiles>
__device__ __forceinline__ void attend(const AttentionDecode& job) {
#if __CUDA_ARCH__ >= 800
    extern __shared__ __align__(128) std::byte memory[];
    using D = Decoder<kK, kV, kDim, kRowTiles>;
    D{job, *reinterpret_cast<typename D::Shared*>(memory)}.run();
#endif
}

}  // namespace

// Grid: (blocks that share the cuts, K/V heads * tiles of rows).
#define GRANARY_DECODE(format, k, v, dim)                                  \
    __global__ void __launch_bounds__(kDecodeThreads, 2)                   \
        attention_decode_##format##_##dim##_1(const AttentionDecode job) { \
        attend<KvCodes::k, KvCodes::v, dim, 1>(job);                       \
    }                                                                      \
    __global__ void __launch_bounds__(kDecodeThreads, 1)                   \
        attention_decode_##format##_##dim##_2(const AttentionDecode job) { \
        attend<KvCodes::k, KvCodes::v, dim, 2>(job);                       \
    }
#define GRANARY_DECODE_DIM(dim)           \
    extern "C" {                          \
    GRANARY_DECODE(f16, f16, f16, dim)    \
    GRANARY_DECODE(int8, int8, int8, dim) \
    GRANARY_DECODE(k8v4, int8, int4, dim) \
    GRANARY_DECODE(q4, int4, int4, dim)   \
    }

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Decode attention by tensor cores, K and V read as they are stored.
//
// A block takes the query rows of one K/V head and 128 cells at a time, 16 a warp, each warp alone
// until its sums are ready: in a short context every cell that there is is on its way before the
// kernels ahead have ended, and what counts is the way of one piece through the block, and how
// little code that is, since a step of a token finds none of it in the processors' caches. A block
// keeps running sums over its cuts; from the fifth on, in contexts where bytes and instructions
// count, a cut has 512 cells, 64 a warp, but where 16 fill a piece of the ring. Which cells are
// whose follows from their numbers and the grid alone.
//
// Of one token, where CudaKernels::turns_itself, it also does what rope_store does, which saves a
// launch: each warp turns one query row, and the one that reads the new cell stores it before.
//
// Bytes: K and V once for each 8 or 16 query rows. Work: 4 heads dim operations a cell; f16 8
// operations a byte at a group of 8, 4-bit codes 28, with about three instructions for each two
// codes to widen them.
#pragma once

#include "gpu/cuda/attention_partials.cuh"
#include "gpu/cuda/early.cuh"
#include "gpu/cuda/rope_head.cuh"

namespace granary::gpu::cuda {
namespace {

template <KvCodes kKCodes, KvCodes kVCodes, uint32_t kDim, uint32_t kRowTiles>
struct Decoder {
    using Ring = CellRing<kKCodes, kVCodes, kDim>;
    using Cells = typename Ring::Cells;
    using Results = Partials<kDim, kRowTiles, kVCodes == KvCodes::int4>;
    static constexpr uint32_t kRows = 8 * kRowTiles, kNear = kDecodeNear, kFar = Ring::kFar;
    using NearK = typename Ring::template K<kNear>;
    using NearV = typename Ring::template V<kNear>;
    static constexpr uint32_t kNone = ~0u;
    // Cuts in front of the long ones; all where there are none.
    static constexpr uint32_t kNearTurns = kFar == kNear ? kNone : kDecodeNearTurns;

    struct Shared {
        alignas(128) std::byte slots[kWarps][kDecodeSlots][Ring::kSlotBytes];
        QueryOperands<kDim, kRowTiles> queries;
        typename Results::Shared results;
    };
    static_assert(sizeof(Shared) == decode_shared_bytes(kDim, kRowTiles, Ring::kScaled));

    const AttentionDecode& job;
    const RopeTurns* const table;  // null where there are two tiles of rows
    Shared& shared;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const uint32_t group = job.heads / job.kv_heads;
    const uint32_t head = blockIdx.y % job.kv_heads, first_row = blockIdx.y / job.kv_heads * kRows;
    const uint32_t stored = job.kv.place->first_cell;       // by earlier steps
    const uint32_t end = stored + job.first_token + job.n;  // cells that the last token sees
    Ring ring{job.kv, kv_base(job.kv), shared.slots[warp][0], head, end};
    RunningSums<kDim, kRowTiles> running;
    uint32_t newest[kRowTiles][2];  // the last cells that this thread's rows see

    __device__ bool is_row(uint32_t row) const { return first_row + row < job.n * group; }
    // A row's place among [n, heads].
    __device__ uint32_t place_of(uint32_t row) const {
        const uint32_t r = first_row + row;
        return r / group * job.heads + head * group + r % group;
    }

    // ---- which cells

    // The first cell of this block's cut number `turn`.
    __device__ uint32_t begin_of(uint32_t turn) const {
        if (turn < kNearTurns) {
            const uint32_t cut = turn * gridDim.x + blockIdx.x;
            return cut * (kWarps * kNear);
        }
        const uint32_t cut = (turn - kNearTurns) * gridDim.x + blockIdx.x;
        return near_end() + cut * (kWarps * kFar);
    }
    // Where the long cuts begin.
    __device__ static uint32_t near_end() {
        return kNearTurns == kNone ? kNone : kNearTurns * gridDim.x * (kWarps * kNear);
    }
    __device__ Cells cells_of(uint32_t turn) const {
        const uint32_t begin = begin_of(turn), step = turn < kNearTurns ? kNear : kFar;
        return begin < end ? ring.cells_at(begin + warp * step, step) : Cells{};
    }
    // Blocks that have cells.
    __device__ uint32_t busy_blocks() const {
        constexpr uint32_t kCells = kWarps * kNear;
        return min((end + kCells - 1) / kCells, gridDim.x);
    }

    // Whether one of this warp's steps has the cell.
    __device__ bool has(uint32_t cell) const {
        const auto in = [&](uint32_t at, uint32_t step) {
            return at / (kWarps * step) % gridDim.x == blockIdx.x &&
                   at % (kWarps * step) / step == warp;
        };
        return cell < near_end() ? in(cell, kNear) : in(cell - near_end(), kFar);
    }

    // ---- a step of a warp

    template <uint32_t kStep, uint32_t kPiece, class BringTo>
    __device__ __forceinline__ void score_pieces(bool any, StepScores<kStep, kRowTiles>& score,
                                                 BringTo&& bring_to) {
        using K = typename Ring::template K<kStep>;
        if constexpr (kPiece < K::kCount) {
            const std::byte* const piece = ring.next_piece();
            if (any) score_piece<K, kRowTiles, kPiece>(piece, shared.queries, score);
            ring.spend_piece([&](uint32_t slot) { bring_to.template operator()<kPiece>(slot); });
            score_pieces<kStep, kPiece + 1>(any, score, bring_to);
        }
    }
    template <uint32_t kStep, uint32_t kPiece, class BringTo>
    __device__ __forceinline__ void sum_pieces(bool any,
                                               const StepWeights<kStep, kRowTiles>& weight,
                                               BringTo&& bring_to) {
        using V = typename Ring::template V<kStep>;
        if constexpr (kPiece < V::kCount) {
            const std::byte* const piece = ring.next_piece();
            if (any) running.template sum_piece<V, kPiece>(piece, weight);
            ring.spend_piece([&](uint32_t slot) {
                bring_to.template operator()<Ring::template K<kStep>::kCount + kPiece>(slot);
            });
            sum_pieces<kStep, kPiece + 1>(any, weight, bring_to);
        }
    }
    // bring_to<piece>(slot): what follows so many pieces further on.
    template <uint32_t kStep, class BringTo>
    __device__ __forceinline__ void step(const Cells& cells, BringTo&& bring_to) {
        const bool any = cells.count > 0;
        StepScores<kStep, kRowTiles> score = {};
        score_pieces<kStep, 0>(any, score, bring_to);
        StepWeights<kStep, kRowTiles> weight;
        if (any) running.template weigh<kStep>(score, cells.first, newest, weight);
        sum_pieces<kStep, 0>(any, weight, bring_to);
    }

    // ---- the queries

    // Where this thread's rows come from; all threads' steps of 16 dims have the same row.
    __device__ const float* query_row() const {
        const uint32_t row = warp % kRowTiles * 8 + g;
        return is_row(row) ? job.q + size_t{place_of(row)} * kDim : nullptr;
    }
    __device__ void load_queries(const float* from) {
        static_assert(kWarps % kRowTiles == 0);
#pragma unroll
        for (uint32_t i = warp; i < kDim / 16 * kRowTiles; i += kWarps) {
            const uint32_t step = i / kRowTiles;
            float value[4] = {};
            if (from)
#pragma unroll
                for (uint32_t j = 0; j < 4; ++j)
                    value[j] = from[step * 16 + query_column<kKCodes>(t, j)] * job.scale;
            shared.queries[step][warp % kRowTiles][lane] =
                make_uint2(pack_half2(value[0], value[1]), pack_half2(value[2], value[3]));
        }
        __syncthreads();
    }

    // ---- what rope_store does, of one token

    static constexpr uint32_t kEach = kDim / 32;  // values of a lane
    // Cosine and sine of pairs lane, lane + 32, ...
    using Angles = float2[kEach / 2];

    __device__ void find_angles(Angles& angles) const {
        // Lanes read other words each, which constants would be for one after the other.
        const double* turns = table->turns;
#if GRANARY_CUDA_ARCH >= 900
        asm volatile("" : "+l"(turns));
#endif
#pragma unroll
        for (uint32_t j = 0; j < kEach / 2; ++j)
            if (32 * j < job.turns.pairs)
                angles[j] = angle_of(turns[lane + 32 * j], stored, table->magnitude);
    }
    __device__ void load_head(const float* from, float (&v)[kEach]) const {
#pragma unroll
        for (uint32_t j = 0; j < kEach; ++j) v[j] = from[lane + 32 * j];
    }
    // Both parts of the new cell, by the warp that reads it afterwards.
    __device__ void store_cell(const Angles& angles) const {
        const DecodeTurns& of = job.turns;
        std::byte* const base = const_cast<std::byte*>(ring.base);
        float k[kEach], v[kEach];
        load_head(of.k + head * kDim, k);
        load_head(of.v + head * kDim, v);
        turn_head(k, of.k_norm, of.eps, of.pairs, kKCodes == KvCodes::int4, lane,
                  [&](uint32_t j) { return angles[j]; });
        store_head(kKCodes, k, place_of_head(job.kv, job.kv.k, base, stored, job.kv_heads, head),
                   lane);
        if constexpr (kVCodes == KvCodes::int4) rotate_head(v, lane);
        store_head(kVCodes, v, place_of_head(job.kv, job.kv.v, base, stored, job.kv_heads, head),
                   lane);
        __syncwarp();
    }
    // Each warp a row.
    __device__ void turn_queries(const Angles& angles) {
        static_assert(kRows == kWarps || kRowTiles > 1);
        const DecodeTurns& of = job.turns;
        float v[kEach] = {};
        if (is_row(warp)) {
            load_head(of.q + size_t{place_of(warp)} * of.q_stride, v);
            turn_head(v, of.q_norm, of.eps, of.pairs, kKCodes == KvCodes::int4, lane,
                      [&](uint32_t j) { return angles[j]; });
        }
#pragma unroll
        for (uint32_t j = 0; j < kEach; ++j) {
            const uint32_t column = lane + 32 * j;
            const QueryPlace to = query_place<kKCodes>(column % 16);
            auto* const values =
                reinterpret_cast<__half*>(&shared.queries[column / 16][0][warp * 4 + to.t]);
            values[to.j] = __low2half(as_half2(pack_half2(v[j] * job.scale, 0)));
        }
        __syncthreads();
    }

    // ---- all of it

    // Cuts of kFar cells a warp, of which the first is on its way.
    __device__ void run_far(Cells cells) {
        constexpr uint32_t kPieces = Ring::template kPieces<kFar>, kSlots = kDecodeSlots;
        static_assert(kPieces >= kSlots);
        for (uint32_t turn = kNearTurns; begin_of(turn) < end; ++turn) {
            const Cells next = cells_of(turn + 1);
            if (begin_of(turn + 1) >= end) let_next_begin();
            step<kFar>(cells, [&]<uint32_t kPiece>(uint32_t slot) {
                if constexpr (kPiece + kSlots < kPieces)
                    ring.template bring<kFar, kPiece + kSlots>(slot, cells);
                else
                    ring.template bring<kFar, kPiece + kSlots - kPieces>(slot, next);
            });
            cells = next;
        }
    }

    __device__ void run() {
        const uint32_t blocks = busy_blocks();
        if (blockIdx.x >= blocks) return;
        Results results{job, shared.results};
        constexpr uint32_t kPieces = Ring::template kPieces<kNear>, kSlots = kDecodeSlots;
        static_assert(kPieces >= kSlots);

        // What takes time and waits for nobody.
        const bool turns = kRowTiles == 1 && job.turns.q;
        Angles angles = {};
        if (turns) find_angles(angles);
        const bool stores = turns && has(stored);
        const float* const query = query_row();
#pragma unroll
        for (uint32_t n = 0; n < kRowTiles; ++n)
#pragma unroll
            for (uint32_t e = 0; e < 2; ++e)
                newest[n][e] = min(
                    stored + job.first_token + (first_row + n * 8 + 2 * t + e) / group, end - 1);
        uint32_t own[kRowTiles];  // rows that this warp puts together
#pragma unroll
        for (uint32_t n = 0; n < kRowTiles; ++n)
            own[n] = is_row(n * 8 + warp) ? place_of(n * 8 + warp) : kNone;

        // Cells of earlier steps may come before this step's are there. A turn in front of the
        // first brings the first's pieces, so that the code for that is there once.
        Cells cells{};
        bool begun = false;
#pragma unroll 1
        for (uint32_t turn = kNone;; ++turn) {
            const bool before = turn == kNone;
            const Cells next = cells_of(turn + 1);
            const bool more = begin_of(turn + 1) < end;
            const bool far = turn + 1 >= kNearTurns;
            if (before && (stores || (next.count && next.first + kNear > stored))) {
                if (next.count) {
                    ring.template prefetch<NearK>(job.kv.k, next);
                    ring.template prefetch<NearV>(job.kv.v, next);
                }
                wait_for_kernels_ahead();
                if constexpr (kRowTiles == 1)
                    if (stores) store_cell(angles);
            } else if (before && kPieces > kSlots && next.count) {
                ring.template prefetch<NearV>(job.kv.v, next);
            }
            // Not earlier: what the next kernels bring would stand before these cells.
            if (begun && !more) let_next_begin();
            const auto bring_to = [&]<uint32_t kPiece>(uint32_t slot) {
                if constexpr (kPiece + kSlots < kPieces) {
                    ring.template bring<kNear, kPiece + kSlots>(slot, cells);
                } else if (!far) {
                    ring.template bring<kNear, kPiece + kSlots - kPieces>(slot, next);
                } else if constexpr (kFar != kNear) {
                    ring.template bring<kFar, kPiece + kSlots - kPieces>(slot, next);
                }
            };
            step<kNear>(cells, bring_to);
            cells = next;
            if (before) {
                wait_for_kernels_ahead();
                if (kRowTiles > 1 || !turns)
                    load_queries(query);
                else if constexpr (kRowTiles == 1)
                    turn_queries(angles);
                begun = true;
            } else if (!more || far) {
                break;
            }
        }
        if constexpr (kFar != kNear) run_far(cells);
        copies_wait<0>();
        static_assert(Results::kWarpBytes <= sizeof shared.slots[0]);
        float* const sums = reinterpret_cast<float*>(shared.slots[0][0]);
        constexpr uint32_t kSumsStride = sizeof shared.slots[0] / sizeof(float);
#pragma unroll
        for (uint32_t n = 0; n < kRowTiles; ++n) {
            if (n > 0) __syncthreads();
            results.template leave<kVCodes != KvCodes::f16>(running, n, sums + warp * kSumsStride);
            __syncthreads();
            if (own[n] != kNone) results.finish(n * 8 + warp, own[n], blocks, sums, kSumsStride);
        }
    }
};

template <KvCodes kK, KvCodes kV, uint32_t kDim, uint32_t kRowTiles>
__device__ __forceinline__ void attend(const AttentionDecode& job, const RopeTurns* table) {
#if __CUDA_ARCH__ >= 800
    extern __shared__ __align__(128) std::byte memory[];
    using D = Decoder<kK, kV, kDim, kRowTiles>;
    D{job, table, *reinterpret_cast<typename D::Shared*>(memory)}.run();
#endif
}

}  // namespace

// Grid: (blocks that share the cuts, K/V heads * tiles of rows).
#define GRANARY_DECODE(format, k, v, dim)                                                       \
    __global__ void __launch_bounds__(kDecodeThreads, 2) attention_decode_##format##_##dim##_1( \
        const __grid_constant__ AttentionDecode job, const __grid_constant__ RopeTurns turns) { \
        attend<KvCodes::k, KvCodes::v, dim, 1>(job, &turns);                                    \
    }                                                                                           \
    __global__ void __launch_bounds__(kDecodeThreads, 1)                                        \
        attention_decode_##format##_##dim##_2(const __grid_constant__ AttentionDecode job) {    \
        attend<KvCodes::k, KvCodes::v, dim, 2>(job, nullptr);                                   \
    }
#define GRANARY_DECODE_DIM(dim)           \
    extern "C" {                          \
    GRANARY_DECODE(f16, f16, f16, dim)    \
    GRANARY_DECODE(int8, int8, int8, dim) \
    GRANARY_DECODE(k8v4, int8, int4, dim) \
    GRANARY_DECODE(q4, int4, int4, dim)   \
    }

}  // namespace granary::gpu::cuda

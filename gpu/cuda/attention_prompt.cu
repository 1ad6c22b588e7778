// SPDX-License-Identifier: GPL-3.0-or-later
// Prompt attention for compute capability 8.0 and up: online softmax over tiles of 64 cells (Dao
// et al. 2022; Dao 2023). Four warps hold 16 or 32 query rows each; scores, weights and sums stay
// in registers; K of the next tile is copied while V of this one is used.
//
// Head 128, 128 query rows, a tile of 64 cells: 4.2 MFLOP = 2,048 cycles of the tensor cores of
// 8.0; 32 KB from L2; 160 KB of matrix loads (80 bytes a cycle of 128: a load of K or V serves 32
// rows). Head 256: 64 query rows, since a warp's sums fill its registers; twice the loads.
#include "gpu/cuda/attention_prompt.h"
#include "gpu/cuda/softmax.cuh"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kThreads = 128, kCells = 64;

// kTiles: of 16 query rows, each warp's.
template <uint32_t kDim, uint32_t kTiles>
struct Shared {
    alignas(128) std::byte q[kDim / 64][64 * kTiles * 128];
    std::byte k[kDim / 64][kCells * 128];
    std::byte v[kDim / 64][kCells * 128];
};

template <uint32_t kDim, uint32_t kTiles>
struct Attender {
    static constexpr uint32_t kRows = 64 * kTiles;
    static constexpr uint32_t kPieces = kDim / 8;  // 16 bytes each, of a row

    const QueryTile<kRows>& queries;
    Shared<kDim, kTiles>& shared;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    SoftmaxRows softmax[kTiles] = {};
    float out[kTiles][kDim / 2] = {};

    // This thread's rows in tile m of its warp.
    __device__ uint32_t row_of(uint32_t m, uint32_t half) const {
        return (warp * kTiles + m) * 16 + lane / 4 + 8 * half;
    }

    __device__ void load_queries() {
#pragma unroll 8
        for (uint32_t i = threadIdx.x; i < kRows * kPieces; i += kThreads) {
            const uint32_t row = i / kPieces, piece = i % kPieces;
            const auto* from = reinterpret_cast<const float4*>(
                queries.job.q + queries.place(row) * kDim + piece * 8);
            const float4 a = from[0], b = from[1];
            const float s = queries.job.scale;
            *reinterpret_cast<uint4*>(shared.q[piece / 8] + swizzled(row, piece % 8)) =
                make_uint4(pack_half2(a.x * s, a.y * s), pack_half2(a.z * s, a.w * s),
                           pack_half2(b.x * s, b.y * s), pack_half2(b.z * s, b.w * s));
        }
    }

    // Begins the copy of a tile of K or V.
    __device__ void bring(std::byte (&to)[kDim / 64][kCells * 128], const KvPart& part,
                          uint32_t cell) {
        if (cell < queries.end) {
            const KvView& kv = queries.job.kv;
            const std::byte* from = kv.base + size_t{cell / kStepCells} * kv.step_bytes +
                                    part.code_offset + size_t{cell % kStepCells} * part.code_row +
                                    blockIdx.y * kDim * 2;
            for (uint32_t i = threadIdx.x; i < kCells * kPieces; i += kThreads) {
                const uint32_t row = i / kPieces, piece = i % kPieces;
                copy_16(shared_address(to[piece / 8]) + swizzled(row, piece % 8),
                        from + row * part.code_row + piece * 16);
            }
        }
        copies_commit();
    }

    __device__ void run(uint32_t tiles) {
        const KvView& kv = queries.job.kv;
        bring(shared.k, kv.k, queries.begin);
        load_queries();
        for (uint32_t i = 0; i < tiles; ++i) {
            const uint32_t cell = queries.begin + i * kCells;
            bring(shared.v, kv.v, cell);
            copies_wait<1>();
            __syncthreads();
            float score[kTiles][kCells / 2] = {};
            scores(score);
            __syncthreads();
            bring(shared.k, kv.k, cell + kCells);
            uint32_t weight[kTiles][kCells / 16][4];
#pragma unroll
            for (uint32_t m = 0; m < kTiles; ++m) {
                const uint32_t last[2] = {queries.cell(row_of(m, 0)), queries.cell(row_of(m, 1))};
                if (cell + kCells > queries.cell(0) + 1) mask(score[m], cell, last);
                float factor[2];
                softmax[m].weigh(score[m], factor);
                scale(out[m], factor);
                pack(score[m], weight[m]);
            }
            copies_wait<1>();
            __syncthreads();
            sums(weight);
            __syncthreads();
        }
        copies_wait<0>();
#pragma unroll
        for (uint32_t i = 0; i < 2 * kTiles; ++i) {
            const uint32_t m = i / 2, half = i % 2;
            queries.template store<kDim>(row_of(m, half), softmax[m].row[half], [&](uint32_t j) {
                return make_float2(out[m][4 * j + 2 * half], out[m][4 * j + 2 * half + 1]);
            });
        }
    }

    // score = Q K^T
    __device__ void scores(float (&score)[kTiles][kCells / 2]) const {
#pragma unroll
        for (uint32_t step = 0; step < kDim / 16; ++step) {
            uint32_t a[kTiles][4];
#pragma unroll
            for (uint32_t m = 0; m < kTiles; ++m)
                load_matrices(a[m], shared_address(shared.q[step / 4]) +
                                        swizzled((warp * kTiles + m) * 16 + lane % 16,
                                                 step % 4 * 2 + lane / 16));
#pragma unroll
            for (uint32_t pair = 0; pair < kCells / 16; ++pair) {
                uint32_t b[4];
                load_matrices(b, shared_address(shared.k[step / 4]) +
                                     swizzled(pair * 16 + lane / 16 * 8 + lane % 8,
                                              step % 4 * 2 + lane / 8 % 2));
#pragma unroll
                for (uint32_t m = 0; m < kTiles; ++m) {
                    mma_16x8x16(octet(score[m], 2 * pair), a[m], b[0], b[1]);
                    mma_16x8x16(octet(score[m], 2 * pair + 1), a[m], b[2], b[3]);
                }
            }
        }
    }
    // out += weight V
    __device__ void sums(const uint32_t (&weight)[kTiles][kCells / 16][4]) {
#pragma unroll
        for (uint32_t step = 0; step < kCells / 16; ++step) {
#pragma unroll
            for (uint32_t pair = 0; pair < kDim / 16; ++pair) {
                uint32_t b[4];
                load_matrices_transposed(
                    b, shared_address(shared.v[pair / 4]) +
                           swizzled(step * 16 + lane % 16, pair % 4 * 2 + lane / 16));
#pragma unroll
                for (uint32_t m = 0; m < kTiles; ++m) {
                    mma_16x8x16(octet(out[m], 2 * pair), weight[m][step], b[0], b[1]);
                    mma_16x8x16(octet(out[m], 2 * pair + 1), weight[m][step], b[2], b[3]);
                }
            }
        }
    }
    template <uint32_t kCount>
    __device__ static float (&octet(float (&values)[kCount], uint32_t number))[4] {
        return *reinterpret_cast<float(*)[4]>(values + 4 * number);
    }
};

template <uint32_t kDim, uint32_t kTiles>
__device__ void attend(const AttentionPrompt& job) {
    extern __shared__ __align__(128) std::byte memory[];
    const QueryTile<64 * kTiles> queries{job};
    Attender<kDim, kTiles>{queries, *reinterpret_cast<Shared<kDim, kTiles>*>(memory)}.run(
        queries.tiles(kCells));
}

}  // namespace

static_assert(kAttentionMma64.shared == sizeof(Shared<64, 2>));
static_assert(kAttentionMma128.shared == sizeof(Shared<128, 2>));
static_assert(kAttentionMma256.shared == sizeof(Shared<256, 1>));

extern "C" {
__global__ void __launch_bounds__(kThreads, 2) attention_prompt_64(const AttentionPrompt job) {
    attend<64, 2>(job);
}
__global__ void __launch_bounds__(kThreads, 2) attention_prompt_128(const AttentionPrompt job) {
    attend<128, 2>(job);
}
__global__ void __launch_bounds__(kThreads, 2) attention_prompt_256(const AttentionPrompt job) {
    attend<256, 1>(job);
}
}

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Expert matmuls of prompts for compute capability 8.0 and up.
//
// A block of four warps makes 128 weight rows x up to 128 routes; a warp holds 32 weight rows and
// all routes. Weights go from their blocks in shared memory to tensor-core operands in registers
// (fragments.cuh), so each is widened once a tile; activations are read by matrix loads, each for
// two products of 16 rows. Copies run two stages ahead; two blocks on a multiprocessor hide each
// other's beginnings and ends.
//
// For a tile of 128 x 128 and 64 columns: 2.1 MFLOP = 1,024 cycles of the tensor cores of 8.0; 16
// KB of activations and 4.6 KB of Q4_K from L2 (20 bytes a cycle); 64 KB of matrix loads (64 bytes
// a cycle of 128); 190 instructions a thread to widen (760 of 4,096 issue slots).
#include "gpu/cuda/expert_copies.cuh"
#include "gpu/cuda/expert_matmul.h"
#include "gpu/cuda/fragments.cuh"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kThreads = 128, kRows = 128;
constexpr uint32_t kStageBytes = kTileRows * 128;  // 64 columns of activations
constexpr uint32_t kRawStages = 2;                 // blocks of 256 columns
constexpr uint32_t kOutStride = 144;               // bytes of 64 results and padding

template <class Format>
struct Shared {
    // Ahead by as much as 99 KB, the limit of 8.6 and 8.9, allow.
    static constexpr uint32_t kStages = Format::kStride <= 160 ? 3 : 2;
    alignas(128) std::byte stage[kStages][kStageBytes];
    std::byte raw[kRawStages][kRows * Format::kStride];
    InRows<kThreads> in_row;
    uint32_t out_row[kTileRows];  // rows of out
};

template <class Format, bool kGateUp>
struct Multiplier {
    static constexpr uint32_t kFeatures = kGateUp ? kRows / 2 : kRows;
    static constexpr uint32_t kStages = Shared<Format>::kStages;

    const ExpertMatmul& job;
    Shared<Format>& shared;
    const uint32_t thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const uint32_t g = lane / 4, t = lane % 4;
    const uint32_t blocks = job.cols / 256, row_bytes = blocks * Format::kBlockBytes;
    ExpertTile tile = {};
    ExpertEntry entry = {};
    uint32_t feature = 0;

    // Begins the copies of 64 columns of 16 kPairs routes, and of the block of weights that they
    // open.
    template <uint32_t kPairs>
    __device__ void bring(uint32_t stage) {
        if (stage < blocks * 4) {
            if (stage % 4 == 0) bring_weights(stage / 4);
            copy_activations<kThreads>(shared_address(shared.stage[stage % kStages]),
                                       static_cast<const std::byte*>(job.x) + stage * 128,
                                       shared.in_row.template of<16 * kPairs>(thread), thread);
        }
        copies_commit();
    }
    __device__ void bring_weights(uint32_t block) {
        const uint32_t rows = min(job.features - feature, kFeatures);
        const size_t at = size_t{feature} * row_bytes + block * Format::kBlockBytes;
        const uint32_t to = shared_address(shared.raw[block % kRawStages]);
        copy_blocks<Format, kThreads>(to, (kGateUp ? entry.gate : entry.down) + at, row_bytes, rows,
                                      thread);
        if (kGateUp)
            copy_blocks<Format, kThreads>(to + kFeatures * Format::kStride, entry.up + at,
                                          row_bytes, rows, thread);
    }

    // Where the low results of the warp's products `m` lie in a row of the tile.
    __device__ uint32_t low_place(uint32_t m) const {
        return kGateUp ? warp * 16 + m * 8 + g : warp * 32 + m * 16 + g;
    }
    // The row of weights that makes them; the one that makes the high results follows at kHigh.
    // Gate and up of one feature, in the order of rows of activations, or rows g and g + 8 of down.
    __device__ uint32_t low_row(uint32_t m) const {
        return kGateUp ? column_at(low_place(m)) : low_place(m);
    }
    static constexpr uint32_t kHigh = kGateUp ? kFeatures : 8;

    __device__ uint32_t shift(uint32_t row, uint32_t block) const {
        if constexpr (Format::kAligned) return 0;
        return ((feature + row % kFeatures) * row_bytes + block * Format::kBlockBytes) % 16;
    }

    template <uint32_t kPairs>
    __device__ void multiply(float (&sum)[2][2 * kPairs][4]) {
#pragma unroll
        for (uint32_t stage = 0; stage < kStages - 1; ++stage) bring<kPairs>(stage);
        for (uint32_t stage = 0; stage < blocks * 4; ++stage) {
            copies_wait<kStages - 2>();
            __syncthreads();
            bring<kPairs>(stage + kStages - 1);
            const uint32_t block = stage / 4;
            const std::byte* raw = shared.raw[block % kRawStages];
            typename Format::Raw low_raw[2], high_raw[2];
#pragma unroll
            for (uint32_t m = 0; m < 2; ++m) {
                const uint32_t low = low_row(m), high = low + kHigh;
                low_raw[m] =
                    Format::load(raw + low * Format::kStride, shift(low, block), stage % 4, t);
                high_raw[m] =
                    Format::load(raw + high * Format::kStride, shift(high, block), stage % 4, t);
            }
            const uint32_t from = shared_address(shared.stage[stage % kStages]);
#pragma unroll
            for (uint32_t half = 0; half < 2; ++half) {
                uint32_t a[2][2][4];  // [step][m]
#pragma unroll
                for (uint32_t m = 0; m < 2; ++m) {
                    const RowOperands low = Format::widen(low_raw[m], half);
                    const RowOperands high = Format::widen(high_raw[m], half);
#pragma unroll
                    for (uint32_t i = 0; i < 8; ++i)
                        a[i / 4][m][i % 4] = (i % 2 ? high : low).value[i / 4][i / 2 % 2];
                }
#pragma unroll
                for (uint32_t step = 0; step < 2; ++step)
#pragma unroll
                    for (uint32_t pair = 0; pair < kPairs; ++pair) {
                        uint32_t b[4];
                        load_matrices(b, from + swizzled(pair * 16 + lane / 16 * 8 + lane % 8,
                                                         half * 4 + step * 2 + lane / 8 % 2));
#pragma unroll
                        for (uint32_t m = 0; m < 2; ++m) {
                            mma_16x8x16(sum[m][2 * pair], a[step][m], b[0], b[1]);
                            mma_16x8x16(sum[m][2 * pair + 1], a[step][m], b[2], b[3]);
                        }
                    }
            }
        }
        copies_wait<0>();
        __syncthreads();
    }

    // silu(gate) * up: transposed through shared memory, 128 bytes a route.
    template <uint32_t kPairs>
    __device__ void store_gated(const float (&sum)[2][2 * kPairs][4]) {
        std::byte* out = shared.stage[0];
#pragma unroll
        for (uint32_t m = 0; m < 2; ++m)
#pragma unroll
            for (uint32_t octet = 0; octet < 2 * kPairs; ++octet)
#pragma unroll
                for (uint32_t i = 0; i < 2; ++i) {
                    const float gate = sum[m][octet][i], up = sum[m][octet][2 + i];
                    const float value = __fdividef(gate, 1 + __expf(-gate)) * up;
                    const uint32_t route = octet * 8 + t * 2 + i;
                    *reinterpret_cast<__half*>(out + route * kOutStride + low_place(m) * 2) =
                        __low2half(as_half2(pack_half2(value, 0)));
                }
        __syncthreads();
        const uint32_t pieces = min(job.features - feature, kFeatures) / 8;
        auto* to =
            static_cast<std::byte*>(job.out) + (size_t(tile.first) * job.features + feature) * 2;
        for (uint32_t i = thread; i < tile.rows * 8u; i += kThreads)
            if (i % 8 < pieces)
                *reinterpret_cast<uint4*>(to + size_t{i / 8} * job.features * 2 + i % 8 * 16) =
                    *reinterpret_cast<const uint4*>(out + i / 8 * kOutStride + i % 8 * 16);
    }

    // 32 bytes, a whole sector, of four routes an instruction.
    template <uint32_t kPairs>
    __device__ void store_float(const float (&sum)[2][2 * kPairs][4]) {
#pragma unroll
        for (uint32_t octet = 0; octet < 2 * kPairs; ++octet)
#pragma unroll
            for (uint32_t i = 0; i < 2; ++i) {
                const uint32_t route = octet * 8 + t * 2 + i;
                if (route >= tile.rows) continue;
                float* to = static_cast<float*>(job.out) +
                            size_t{shared.out_row[route]} * job.features + feature;
#pragma unroll
                for (uint32_t m = 0; m < 2; ++m) {
                    const uint32_t row = low_row(m);
                    if (feature + row < job.features) to[row] = sum[m][octet][i];
                    if (feature + row + 8 < job.features) to[row + 8] = sum[m][octet][2 + i];
                }
            }
    }

    __device__ void run() {
        const uint32_t across = (job.features + kFeatures - 1) / kFeatures;
        const uint32_t tiles = static_cast<uint32_t>(*job.tile_count) * across;
        for (uint32_t number = blockIdx.x; number < tiles; number += gridDim.x) {
            tile = job.tiles[number / across];
            entry = job.entries[tile.expert];
            feature = number % across * kFeatures;
            const uint32_t place = tile.first + min(thread, tile.rows - 1u);
            const uint32_t route = job.order[place];
            __syncthreads();  // all are done with the last tile
            shared.in_row.set(thread, (kGateUp ? route / job.used : place) * job.cols * 2);
            shared.out_row[thread] = route;
            __syncthreads();
            if (tile.rows <= 16)
                run_tile<1>();
            else if (tile.rows <= 32)
                run_tile<2>();
            else if (tile.rows <= 64)
                run_tile<4>();
            else if (tile.rows <= 96)
                run_tile<6>();
            else
                run_tile<8>();
        }
    }
    template <uint32_t kPairs>
    __device__ void run_tile() {
        float sum[2][2 * kPairs][4] = {};
        multiply<kPairs>(sum);
        if constexpr (kGateUp)
            store_gated<kPairs>(sum);
        else
            store_float<kPairs>(sum);
    }
};

template <class Format, bool kGateUp>
__device__ void expert_matmul(const ExpertMatmul& job) {
    extern __shared__ __align__(128) std::byte memory[];
    Multiplier<Format, kGateUp>{job, *reinterpret_cast<Shared<Format>*>(memory)}.run();
}

}  // namespace

static_assert(kExpertMma.threads == kThreads && kExpertMma.shared_q4_k == sizeof(Shared<Q4K>) &&
              kExpertMma.shared_q6_k == sizeof(Shared<Q6K>));

extern "C" {
__global__ void __launch_bounds__(kThreads, 2) expert_gate_up_q4_k(const ExpertMatmul job) {
    expert_matmul<Q4K, true>(job);
}
__global__ void __launch_bounds__(kThreads, 2) expert_down_q4_k(const ExpertMatmul job) {
    expert_matmul<Q4K, false>(job);
}
__global__ void __launch_bounds__(kThreads, 2) expert_down_q6_k(const ExpertMatmul job) {
    expert_matmul<Q6K, false>(job);
}
}

}  // namespace granary::gpu::cuda

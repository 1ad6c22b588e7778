// SPDX-License-Identifier: GPL-3.0-or-later
// Matrix products of decode steps: 1 to 8 rows of activations, every weight read once.
//
// Bytes decide, and their latency: 11 MB of Q8_0 are 2.8 us at 3.9 TB/s if all 84 KB of a
// multiprocessor are under way at once. So all of a matrix's blocks run at once, and each warp
// begins by copying its first chunks (16 weight rows x 256 columns) to shared memory; where the
// weights are known, before the activations are there (early.cuh). It multiplies them on the tensor
// cores by eight columns, of which as many hold activations as there are rows: a row's result
// cannot depend on the others. The warps that share a tile's columns add up their sums in their
// order.
//
// Widening decides: of Q4_K, 16,384 x 2,048 (19 MB), copies alone take 6.5 us and arithmetic alone
// 11.0 of the 11.9 together; of Q6_K (28 MB) 8.7 and 18.3 of 21.1; 5,120 x 2,048 of Q8_0 (11 MB)
// 4.0 and 4.1 of 6.0 (H200, calls in a row).
#include "gpu/cuda/early.cuh"
#include "gpu/cuda/lane_groups.cuh"
#include "gpu/cuda/matmul.h"
#include "gpu/cuda/portable.h"
#include "gpu/cuda/read_once.cuh"

namespace granary::gpu::cuda {
namespace {

// Activations: lane (row g, thread t). Lanes beyond the rows hold zeros.
struct Input {
    const std::byte* row;  // null: none
    uint32_t groups;       // of 32 columns

    __device__ __forceinline__ void load(uint32_t group, uint4 (&x)[4]) const {
        const bool some = row && group < groups;
        const auto* at = reinterpret_cast<const uint4*>(row + size_t{group} * 64);
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) x[i] = some ? at[i] : uint4{};
    }
};

// Two consecutive words of x are the two halves of a product's columns, so that they stand in
// registers as the tensor cores want them.
__device__ __forceinline__ void products(float (&sum)[2][4], const GroupOperands& low,
                                         const GroupOperands& high, const uint4 (&x)[4]) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t s = i / 2, h = i % 2;
#pragma unroll
        for (uint32_t q = 0; q < 4; q += 2) {
            const uint32_t a[4] = {low.value[q][s][h], high.value[q][s][h], low.value[q + 1][s][h],
                                   high.value[q + 1][s][h]};
            mma_16x8x16(sum[s], a, q == 0 ? x[i].x : x[i].z, q == 0 ? x[i].y : x[i].w);
        }
    }
}

// A matrix, or two side by side, as tiles: rows g of a tile's low half, and of its high half.
struct Tiles {
    const std::byte *low, *high;  // row 0 of each
    uint32_t low_bytes, high_bytes, rows;
    uint32_t per_tile;   // rows from tile to tile: 16 of one matrix, 8 of each of two
    uint32_t high_from;  // from a low row to its high one
    uint32_t cols;
    uint32_t group, step, groups;  // the block's first group of tiles, the next, the end

    // Chunk `chunk` of row r of tile `tile`, 0 .. 15; rows past the end repeat the last.
    __device__ __forceinline__ const std::byte* at(uint32_t tile, uint32_t r, size_t chunk,
                                                   bool is_high) const {
        const uint32_t row = tile * per_tile + r % 8;
        return !is_high ? low + size_t{min(row, rows - 1)} * low_bytes + chunk
                        : high + size_t{min(row + high_from, rows - 1)} * high_bytes + chunk;
    }
};

// Any type, by its exact decoding.
__device__ __forceinline__ GroupOperands decoded(WeightType type, const std::byte* row,
                                                 uint32_t group, uint32_t cols) {
    GroupOperands out;
#pragma unroll
    for (uint32_t q = 0; q < 4; ++q) {
        float value[8];
        decode_octet(type, row, group * 4 + q, cols, value);
#pragma unroll
        for (uint32_t s = 0; s < 2; ++s)
#pragma unroll
            for (uint32_t h = 0; h < 2; ++h)
                out.value[q][s][h] = pack_half2(value[4 * s + h], value[4 * s + 2 + h]);
    }
    return out;
}
// This thread's rows of a chunk times x, added to sum.
template <class Groups>
__device__ __forceinline__ void accumulate(float (&sum)[2][4], const std::byte* low,
                                           const std::byte* high, uint32_t chunk, const Input& in) {
    const uint32_t t = threadIdx.x % 4;
#pragma unroll
    for (uint32_t j = 0; j < 2; ++j) {
        const uint32_t group = chunk * 8 + Groups::group(t, j);
        uint4 x[4];
        in.load(group, x);
        typename Groups::Raw low_raw = {}, high_raw = {};
        if (group < in.groups) {
            low_raw = Groups::load(low, t, j);
            high_raw = Groups::load(high, t, j);
        }
        products(sum, Groups::widen(low_raw, t, j), Groups::widen(high_raw, t, j), x);
    }
}
// Of any type, where it lies.
struct AnyGroups {
    static constexpr bool kStaged = false;
    static constexpr uint32_t kChunkBytes = 0;
    __device__ static uint32_t group(uint32_t t, uint32_t j) { return 2 * t + j; }
};
__device__ __noinline__ void accumulate_any(float (&sum)[2][4], WeightType low_type,
                                            WeightType high_type, const std::byte* low,
                                            const std::byte* high, uint32_t chunk,
                                            const Input& in) {
    const uint32_t t = threadIdx.x % 4;
    for (uint32_t j = 0; j < 2; ++j) {
        const uint32_t group = chunk * 8 + AnyGroups::group(t, j);
        uint4 x[4];
        in.load(group, x);
        GroupOperands of_low = {}, of_high = {};
        if (group < in.groups) {
            of_low = decoded(low_type, low, group, in.groups * 32);
            of_high = decoded(high_type, high, group, in.groups * 32);
        }
        __syncwarp();
        products(sum, of_low, of_high, x);
    }
}

using Parts = float4[2][kMatvecThreads];  // sums of a tile's warps, of two tiles in turn

// finish(tile, total) for each tile of the block's groups, by the tile's first warp: total is c[16,
// 8] as mma_16x8x16 leaves it. Waits for the kernels ahead before it reads activations.
template <WeightType kType, class Groups, class Finish>
__device__ __forceinline__ void multiply(const Tiles& tiles, const WeightType (&type)[2],
                                         const Input& in, const MatvecLaunch& launch, Parts& part,
                                         const Finish& finish) {
    extern __shared__ __align__(16) std::byte memory[];
    constexpr ChunkFormat kFormat = chunk_format(kType);
    constexpr uint32_t kPieces = kFormat.pieces(), kStride = kFormat.stride();
    static_assert(!Groups::kStaged || kFormat.bytes == Groups::kChunkBytes);
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4;
    const uint32_t split = launch.shape.split, first = warp % split;
    const uint32_t chunks = (tiles.cols + 255) / 256;
    const auto tile_of = [&](uint32_t group) { return group * launch.shape.tiles + warp / split; };
    std::byte* const mine = memory + warp * launch.stages * kFormat.tile();

    const ReadOnce once;
    uint32_t next_group = tiles.group, next_chunk = first;
    const auto bring = [&](uint32_t stage) {
        if constexpr (Groups::kStaged) {
            if (next_group < tiles.groups) {
                const uint32_t to = shared_address(mine) + stage * kFormat.tile();
                const uint32_t tile = tile_of(next_group), from = next_chunk * kFormat.bytes;
                const uint32_t left = min(kFormat.bytes, tiles.low_bytes - from);
                // Four rows at a time, eight lanes a row.
#pragma unroll
                for (uint32_t i = 0; i < kMatvecTile; i += 4) {
                    const uint32_t r = i + lane / 8;
                    const std::byte* const row = tiles.at(tile, r, from, i >= kMatvecTile / 2);
                    const uint32_t shift = kFormat.shift(row);
#pragma unroll
                    for (uint32_t piece = 0; piece < kPieces; piece += 8) {
                        const uint32_t byte = (piece + lane % 8) * 16;
                        if (byte < shift + left)
                            once.copy_16(to + r * kStride + byte, row - shift + byte);
                    }
                }
                next_chunk += split;
                if (next_chunk >= chunks) {
                    next_chunk = first;
                    next_group += tiles.step;
                }
            }
            copies_commit();
        }
    };
    for (uint32_t stage = 0; stage < launch.stages; ++stage) bring(stage);
    wait_for_kernels_ahead();

    uint32_t stage = 0, turn = 0;
    for (uint32_t group = tiles.group; group < tiles.groups; group += tiles.step) {
        const uint32_t tile = tile_of(group);
        float sum[2][4] = {};
        for (uint32_t chunk = first; chunk < chunks; chunk += split) {
            if constexpr (Groups::kStaged) {
                if (launch.stages > 1)
                    copies_wait<1>();
                else
                    copies_wait<0>();
                __syncwarp();
                const std::byte* const here = mine + stage * kFormat.tile();
                const auto row = [&](uint32_t r) {
                    const std::byte* const from = tiles.at(tile, r, chunk * kFormat.bytes, r >= 8);
                    return here + r * kStride + kFormat.shift(from);
                };
                accumulate<Groups>(sum, row(g), row(g + 8), chunk, in);
                __syncwarp();
                bring(stage);
                stage = stage + 1 < launch.stages ? stage + 1 : 0;
            } else {
                const size_t from = size_t{chunk} * Groups::kChunkBytes;
                const std::byte *const low = tiles.at(tile, g, from, false), *const high = tiles.at(
                                                                                 tile, g, from,
                                                                                 true);
                if constexpr (Groups::kChunkBytes > 0)
                    accumulate<Groups>(sum, low, high, chunk, in);
                else
                    accumulate_any(sum, type[0], type[1], low, high, chunk, in);
            }
        }
        part[turn][threadIdx.x] = {sum[0][0] + sum[1][0], sum[0][1] + sum[1][1],
                                   sum[0][2] + sum[1][2], sum[0][3] + sum[1][3]};
        __syncthreads();
        if (first == 0) {
            float4 all = part[turn][threadIdx.x];
            for (uint32_t i = 1; i < split; ++i) {
                const float4 more = part[turn][threadIdx.x + 32 * i];
                all.x += more.x, all.y += more.y, all.z += more.z, all.w += more.w;
            }
            finish(tile, all);
        }
        turn ^= 1;
    }
}

template <bool kAny, class Finish>
__device__ __forceinline__ void multiply(const Tiles& tiles, const WeightType (&type)[2],
                                         const Input& in, const MatvecLaunch& launch,
                                         const Finish& finish) {
    __shared__ Parts part;
    if constexpr (kAny) {
        multiply<WeightType::f32, AnyGroups>(tiles, type, in, launch, part, finish);
    } else {
        switch (type[0]) {
#define GRANARY_CASE(name)                                                                      \
    case WeightType::name:                                                                      \
        multiply<WeightType::name, LaneGroups<WeightType::name>>(tiles, type, in, launch, part, \
                                                                 finish);                       \
        break;
            GRANARY_CASE(q4_k)
            GRANARY_CASE(q5_k)
            GRANARY_CASE(q6_k)
            GRANARY_CASE(q8_0)
            GRANARY_CASE(q5_0)
            GRANARY_CASE(q5_1)
            GRANARY_CASE(q4_0)
            GRANARY_CASE(iq4_xs)
            GRANARY_CASE(iq4_nl)
            GRANARY_CASE(mxfp4)
            GRANARY_CASE(f16)
            GRANARY_CASE(bf16)
#undef GRANARY_CASE
            default:  // the host asks for the other kernel
                __trap();
        }
    }
}

__device__ __forceinline__ uint32_t groups_of(uint32_t rows, uint32_t per_tile,
                                              const MatvecShape& shape) {
    return (rows + per_tile * shape.tiles - 1) / (per_tile * shape.tiles);
}

// out (+)= weight x. Grid: the blocks of all jobs.
template <bool kAny>
__device__ __forceinline__ void dense(const Matvec& all) {
    let_next_begin();
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    uint32_t number = 0;
    while (number + 1 < all.jobs && blockIdx.x >= all.job[number + 1].first_block) ++number;
    const MatvecJob& job = all.job[number];
    const auto row_bytes = static_cast<uint32_t>(job.row_bytes);
    const Tiles tiles{job.weight,
                      job.weight,
                      row_bytes,
                      row_bytes,
                      job.features,
                      kMatvecTile,
                      8,
                      all.cols,
                      blockIdx.x - job.first_block,
                      job.blocks,
                      groups_of(job.features, kMatvecTile, all.launch.shape)};
    const Input in{g < all.rows ? all.x + g * all.x_bytes : nullptr, all.cols / 32};
    const WeightType type[2] = {job.type, job.type};
    multiply<kAny>(tiles, type, in, all.launch, [&](uint32_t tile, const float4& total) {
        const float value[4] = {total.x, total.y, total.z, total.w};
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            const uint32_t feature = tile * kMatvecTile + g + i / 2 * 8, column = 2 * t + i % 2;
            if (feature >= job.features || column >= all.rows) continue;
            float& out = job.out[size_t{column} * job.features + feature];
            out = job.add ? out + value[i] : value[i];
        }
    });
}

// silu(gate x) * (up x): a tile's low rows are eight of gate, its high ones the same of up. Lets
// the next kernel begin behind its wait: the experts and their weights are there then.
template <bool kAny>
__device__ __forceinline__ void gate_up(const ExpertMatvec& job) {
    wait_for_kernels_ahead();
    let_next_begin();
    const uint32_t g = threadIdx.x % 32 / 4, route = blockIdx.y;
    const int32_t expert = job.expert[route];
    if (!job.list.has(expert)) return;
    const ExpertEntry entry = job.entries[expert];
    const Tiles tiles{entry.gate,
                      entry.up,
                      static_cast<uint32_t>(job.row_bytes[0]),
                      static_cast<uint32_t>(job.row_bytes[1]),
                      job.features,
                      kMatvecTile / 2,
                      0,
                      job.cols,
                      blockIdx.x,
                      gridDim.x,
                      groups_of(job.features, kMatvecTile / 2, job.launch.shape)};
    const Input in{g == 0 ? job.x + route / job.used * job.x_bytes : nullptr, job.cols / 32};
    multiply<kAny>(tiles, job.type, in, job.launch, [&](uint32_t tile, const float4& total) {
        const uint32_t feature = tile * (kMatvecTile / 2) + g;
        if (threadIdx.x % 4 || feature >= job.features) return;
        const float value = total.x / (1 + __expf(-total.x)) * total.z;
        reinterpret_cast<__half*>(job.out + route * job.out_bytes)[ordered_column(feature)] =
            __low2half(as_half2(pack_half2(value, 0)));
    });
}

// Follows gate_up, so that before its own wait it may read what routes and experts are: behind L1,
// which may hold what they were.
template <bool kAny>
__device__ __forceinline__ void down(const ExpertMatvec& job) {
    let_next_begin();
    const uint32_t g = threadIdx.x % 32 / 4, route = blockIdx.y;
    const int32_t expert = __ldcg(job.expert + route);
    if (!job.list.has(expert)) return wait_for_kernels_ahead();
    const auto* const weight = reinterpret_cast<const std::byte*>(
        __ldcg(reinterpret_cast<const unsigned long long*>(&job.entries[expert].down)));
    const auto row_bytes = static_cast<uint32_t>(job.row_bytes[0]);
    const Tiles tiles{weight,
                      weight,
                      row_bytes,
                      row_bytes,
                      job.features,
                      kMatvecTile,
                      8,
                      job.cols,
                      blockIdx.x,
                      gridDim.x,
                      groups_of(job.features, kMatvecTile, job.launch.shape)};
    const Input in{g == 0 ? job.x + route * job.x_bytes : nullptr, job.cols / 32};
    const WeightType type[2] = {job.type[0], job.type[0]};
    multiply<kAny>(tiles, type, in, job.launch, [&](uint32_t tile, const float4& total) {
        if (threadIdx.x % 4) return;
        auto* const out = reinterpret_cast<__half*>(job.out + route * job.out_bytes);
        const uint32_t feature = tile * kMatvecTile + g;
        const __half2 both = as_half2(pack_half2(total.x, total.z));
        if (feature < job.features) out[feature] = __low2half(both);
        if (feature + 8 < job.features) out[feature + 8] = __high2half(both);
    });
}

}  // namespace

// NAME takes the types of LaneGroups, gate and up of one; NAME_any takes all.
#define GRANARY_BOUNDS __launch_bounds__(kMatvecThreads, kMatvecBlocks)
extern "C" {
__global__ void GRANARY_BOUNDS matvec(const __grid_constant__ Matvec job) {
    dense<false>(job);
}
__global__ void GRANARY_BOUNDS matvec_any(const __grid_constant__ Matvec job) {
    dense<true>(job);
}
__global__ void GRANARY_BOUNDS expert_matvec_gate_up(const __grid_constant__ ExpertMatvec job) {
    gate_up<false>(job);
}
__global__ void GRANARY_BOUNDS expert_matvec_gate_up_any(const __grid_constant__ ExpertMatvec job) {
    gate_up<true>(job);
}
__global__ void GRANARY_BOUNDS expert_matvec_down(const __grid_constant__ ExpertMatvec job) {
    down<false>(job);
}
__global__ void GRANARY_BOUNDS expert_matvec_down_any(const __grid_constant__ ExpertMatvec job) {
    down<true>(job);
}
}

}  // namespace granary::gpu::cuda

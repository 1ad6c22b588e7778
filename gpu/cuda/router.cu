// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/cuda/router.h"

#include "gpu/cuda/rows.cuh"
#include "gpu/cuda/unpack.cuh"

namespace granary::gpu::cuda {
namespace {

// Columns 8 octet .. of a row of the router, which is f32 or of any type.
template <bool kF32>
__device__ __forceinline__ void router_octet(const RouteRows& args, uint32_t expert, uint32_t octet,
                                             float (&v)[8]) {
    const std::byte* const row = args.router + expert * args.row_bytes;
    if (kF32)
        load_octet(reinterpret_cast<const float*>(row), octet, args.cols, v);
    else
        decode_octet(static_cast<WeightType>(args.type), row, octet, args.cols, v);
}

// ---- a row's experts, by one warp

__device__ __forceinline__ float largest_of_warp(float value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(~0u, value, distance));
    return value;
}

// Values of experts lane, lane + 32, ...: kEach of them in registers, or any number in memory,
// where the logits were.
template <uint32_t kEach>
struct InRegisters {
    float values[kEach];
    __device__ __forceinline__ constexpr uint32_t count() const { return kEach; }
    __device__ __forceinline__ float& operator[](uint32_t j) { return values[j]; }
};
struct InMemory {
    float* first;
    uint32_t experts;
    __device__ __forceinline__ uint32_t count() const { return experts; }
    __device__ __forceinline__ float& operator[](uint32_t j) { return first[32 * j]; }
};

// A NaN anywhere makes every expert equally likely, so that a broken file still routes somewhere.
template <class Values>
__device__ __forceinline__ void choose(const RouteRows& args, uint32_t row, uint32_t lane,
                                       int32_t* expert_of, Values p) {
    const float* const logits = args.logits + size_t{row} * args.experts;
    float largest = -INFINITY;
#pragma unroll
    for (uint32_t j = 0; j < p.count(); ++j) {
        const uint32_t e = lane + 32 * j;
        p[j] = e < args.experts ? __ldcg(logits + e) : -INFINITY;
        largest = fmaxf(largest, p[j]);
    }
    largest = largest_of_warp(largest);
    float sum = 0;
#pragma unroll
    for (uint32_t j = 0; j < p.count(); ++j) {
        p[j] = lane + 32 * j < args.experts ? expf(p[j] - largest) : 0.0f;
        sum += p[j];
    }
    sum = warp_sum(sum);
    const bool good = sum >= 1 && sum < INFINITY;
#pragma unroll
    for (uint32_t j = 0; j < p.count(); ++j) {
        p[j] = good ? __fdiv_rn(p[j], sum) : 1.0f / static_cast<float>(args.experts);
        if (lane + 32 * j >= args.experts) p[j] = -1;
    }

    const size_t route = size_t{row} * args.used;
    float chosen = 0, weights[(kMostUsed + 31) / 32] = {};
    for (uint32_t rank = 0; rank < args.used; ++rank) {
        // Bits of values that are not negative are in the order of the values; -1 is below all.
        int mine = -1;
        uint32_t place = ~0u;
#pragma unroll
        for (uint32_t j = 0; j < p.count(); ++j)
            if (const int bits = __float_as_int(p[j]); bits > mine) {
                mine = bits;
                place = lane + 32 * j;
            }
        const uint32_t most = warp_max(static_cast<uint32_t>(mine + 1));
        const uint32_t e = warp_min(static_cast<uint32_t>(mine + 1) == most ? place : ~0u);
        const float weight = __uint_as_float(most - 1);
#pragma unroll
        for (uint32_t j = 0; j < p.count(); ++j)
            if (lane + 32 * j == e) p[j] = -1;
        chosen += weight;
#pragma unroll
        for (uint32_t i = 0; i < (kMostUsed + 31) / 32; ++i)
            if (rank == 32 * i + lane) weights[i] = weight;
        if (lane == 0) {
            args.routes.expert[route + rank] = static_cast<int32_t>(e);
            expert_of[rank] = static_cast<int32_t>(e);
        }
    }
    const float divisor = args.normalise ? fmaxf(chosen, 6.1e-5f) : 1.0f;
#pragma unroll
    for (uint32_t i = 0; i < (kMostUsed + 31) / 32; ++i)
        if (32 * i + lane < args.used)
            args.routes.weight[route + 32 * i + lane] = weights[i] / divisor * args.scale;
}

__device__ __forceinline__ void choose(const RouteRows& args, uint32_t row, uint32_t lane,
                                       int32_t* expert_of) {
    if (args.experts <= 128)
        choose(args, row, lane, expert_of, InRegisters<4>{});
    else if (args.experts <= 256)
        choose(args, row, lane, expert_of, InRegisters<8>{});
    else if (args.experts <= 512)
        choose(args, row, lane, expert_of, InRegisters<16>{});
    else
        choose(args, row, lane, expert_of,
               InMemory{args.logits + size_t{row} * args.experts + lane,
                        (args.experts - lane + 31) / 32});
}

// How many of the routes go to `expert`. The list begins at a multiple of 16 bytes.
__device__ __forceinline__ int32_t count_of(const int32_t* expert_of, uint32_t routes,
                                            int32_t expert) {
    int32_t count = 0;
    const auto* const four = reinterpret_cast<const int4*>(expert_of);
    for (uint32_t i = 0; i < routes / 4; ++i) {
        const int4 e = four[i];
        count += (e.x == expert) + (e.y == expert) + (e.z == expert) + (e.w == expert);
    }
    for (uint32_t r = routes / 4 * 4; r < routes; ++r) count += expert_of[r] == expert;
    return count;
}

// first from counts, by a block of kThreads: count_of(e) once for each expert, then begins(e,
// first).
template <uint32_t kThreads, class Count, class Begins>
__device__ __forceinline__ void sum_counts(const Routes& routes, uint32_t experts,
                                           const Count& count_of_expert, const Begins& begins) {
    __shared__ int32_t sums[kThreads / 32];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int32_t before = 0;
    for (uint32_t from = 0; from < experts; from += kThreads) {
        const uint32_t e = from + threadIdx.x;
        const int32_t count = e < experts ? count_of_expert(e) : 0;
        int32_t sum = count;
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
            const int32_t other = __shfl_up_sync(~0u, sum, distance);
            if (lane >= static_cast<uint32_t>(distance)) sum += other;
        }
        if (lane == 31) sums[warp] = sum;
        __syncthreads();
        int32_t total = 0;
        for (uint32_t w = 0; w < kThreads / 32; ++w) {
            if (w == warp) sum += total;
            total += sums[w];
        }
        if (e < experts) {
            routes.first[e] = before + sum - count;
            begins(e, before + sum - count);
        }
        before += total;
        __syncthreads();
    }
    if (threadIdx.x == 0) routes.first[experts] = before;
}

// Whether this block is the last of the grid to come here; what the others wrote is visible then.
__device__ bool last_block(uint32_t* finished) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(finished, 1) + 1 == gridDim.x;
        if (last) *finished = 0;
    }
    __syncthreads();
    __threadfence();
    return last;
}

__device__ __forceinline__ float sum_of(const float (&totals)[kRouterTotals]) {
    float sum = totals[0];
#pragma unroll
    for (uint32_t i = 1; i < kRouterTotals; ++i) sum += totals[i];
    return sum;
}

// Columns that the lanes of a warp take at once, a slice each, and where column c of these lies in
// shared memory: so that lanes read 16 bytes of their slices together.
constexpr uint32_t kLaneCols = 32 * kRouterSlice, kSliceFloats = kRouterSlice + 4;

__device__ __forceinline__ float* slice_octet(float* memory, uint32_t octet) {
    return memory + octet / (kRouterSlice / 8) * kSliceFloats + octet % (kRouterSlice / 8) * 8;
}
// A slice's products with the weights, in order.
__device__ __forceinline__ float slice_sum(const float* memory, uint32_t lane,
                                           const float (&weights)[kRouterSlice]) {
    float sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < kRouterSlice / 4; ++i) {
        const float4 x = reinterpret_cast<const float4*>(memory + lane * kSliceFloats)[i];
        sum = fmaf(weights[4 * i], x.x, sum);
        sum = fmaf(weights[4 * i + 1], x.y, sum);
        sum = fmaf(weights[4 * i + 2], x.z, sum);
        sum = fmaf(weights[4 * i + 3], x.w, sum);
    }
    return sum;
}

// A warp an expert for all rows, a lane a slice; the last block does the rest. Grid: experts / 4.
// Work: 2 experts cols operations a row. Bytes: the router once.
template <bool kF32>
__device__ __forceinline__ void route_few(const RouteRows& args) {
    __shared__ __align__(16) float first_x[32 * kSliceFloats];
    __shared__ __align__(16) float memory[4][32 * kSliceFloats];  // weights, then rows of x
    __shared__ __align__(16) int32_t expert_of[kFewRows * kMostUsed];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t expert = blockIdx.x * 4 + warp, rows = args.routes.rows;
    const auto stage_x = [&](uint32_t row, uint32_t from, float* to, uint32_t thread,
                             uint32_t threads) {
        for (uint32_t octet = thread; octet < kLaneCols / 8; octet += threads) {
            float v[8];
            load_octet(args.x + size_t{row} * args.cols, from / 8 + octet, args.cols, v);
            auto* const place = reinterpret_cast<float4*>(slice_octet(to, octet));
            place[0] = {v[0], v[1], v[2], v[3]};
            place[1] = {v[4], v[5], v[6], v[7]};
        }
    };
    float total[kFewRows][kRouterTotals] = {};
    for (uint32_t from = 0; from < args.cols; from += kLaneCols) {
        stage_x(0, from, first_x, threadIdx.x, 128);
#pragma unroll
        for (uint32_t i = 0; i < kLaneCols / 256; ++i) {
            const uint32_t octet = 32 * i + lane;
            float v[8] = {};
            if (expert < args.experts && from + octet * 8 < args.cols)
                router_octet<kF32>(args, expert, from / 8 + octet, v);
            auto* const place = reinterpret_cast<float4*>(slice_octet(memory[warp], octet));
            place[0] = {v[0], v[1], v[2], v[3]};
            place[1] = {v[4], v[5], v[6], v[7]};
        }
        __syncthreads();
        float weights[kRouterSlice];
#pragma unroll
        for (uint32_t i = 0; i < kRouterSlice / 4; ++i) {
            const float4 w = reinterpret_cast<const float4*>(memory[warp] + lane * kSliceFloats)[i];
            weights[4 * i] = w.x, weights[4 * i + 1] = w.y;
            weights[4 * i + 2] = w.z, weights[4 * i + 3] = w.w;
        }
        const auto add = [&](float(&sums)[kRouterTotals], const float* x) {
            const float slice = slice_sum(x, lane, weights);
#pragma unroll
            for (int i = 0; i < 32; ++i) sums[i % kRouterTotals] += __shfl_sync(~0u, slice, i);
        };
        add(total[0], first_x);
#pragma unroll
        for (uint32_t first = 1; first < kFewRows; first += 4) {
            if (first >= rows) break;
            __syncthreads();
            if (first + warp < rows) stage_x(first + warp, from, memory[warp], lane, 32);
            __syncthreads();
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i)
                if (first + i < kFewRows && first + i < rows) add(total[first + i], memory[i]);
        }
        __syncthreads();
    }
#pragma unroll
    for (uint32_t row = 0; row < kFewRows; ++row)
        if (row < rows && expert < args.experts && lane == 0)
            args.logits[size_t{row} * args.experts + expert] = sum_of(total[row]);
    if (!last_block(args.finished)) return;

    for (uint32_t row = warp; row < rows; row += 4)
        choose(args, row, lane, expert_of + row * args.used);
    __syncthreads();
    const uint32_t routes = rows * args.used;
    sum_counts<128>(
        args.routes, args.experts,
        [&](uint32_t e) {
            return args.routes.count[e] = count_of(expert_of, routes, static_cast<int32_t>(e));
        },
        [&](uint32_t e, int32_t at) {
            for (uint32_t r = 0; r < routes; ++r)
                if (expert_of[r] == static_cast<int32_t>(e))
                    args.routes.order[at++] = static_cast<int32_t>(r);
        });
}

// Tiles of 64 rows and 64 experts. A quarter of a block's threads has every fourth slice, 8 x 8
// products a thread: fewer would wait for shared memory. Grid (rows / 64, experts / 64). Work: 2
// experts cols operations a row. Bytes: 4 cols a row for every 64 experts.
template <bool kF32>
__device__ __forceinline__ void route_logits(const RouteRows& args) {
    constexpr uint32_t kTile = 64, kCols = 8, kStride = kTile + 4;
    constexpr uint32_t kSteps = kRouterSlice / kCols;
    __shared__ __align__(16) float xs[2][kRouterTotals][kCols][kStride];
    __shared__ __align__(16) float ws[2][kRouterTotals][kCols][kStride];
    const uint32_t first_row = blockIdx.x * kTile, first_expert = blockIdx.y * kTile;
    const uint32_t quarter = threadIdx.x / kTile, item = threadIdx.x % kTile;
    const uint32_t rounds =
        (args.cols + kRouterSlice * kRouterTotals - 1) / (kRouterSlice * kRouterTotals);

    // A thread fetches an octet of its quarter's slice, of a row and of an expert.
    float x[8], w[8];
    const auto fetch = [&](uint32_t step) {
        const uint32_t octet = (step / kSteps * kRouterTotals + quarter) * kSteps + step % kSteps;
        const bool there = octet * 8 < args.cols;
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) x[i] = w[i] = 0;
        if (there && first_row + item < args.routes.rows)
            load_octet(args.x + size_t{first_row + item} * args.cols, octet, args.cols, x);
        if (there && first_expert + item < args.experts)
            router_octet<kF32>(args, first_expert + item, octet, w);
    };
    const auto put = [&](uint32_t buffer) {
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) {
            xs[buffer][quarter][i][item] = x[i];
            ws[buffer][quarter][i][item] = w[i];
        }
    };
    // Rows 4 ty .. and 32 + 4 ty .., experts likewise.
    const uint32_t ty = item / 8, tx = item % 8;
    float sum[8][8] = {}, total[8][8] = {};
    fetch(0);
    put(0);
    __syncthreads();
    for (uint32_t step = 0; step < rounds * kSteps; ++step) {
        const uint32_t buffer = step % 2;
        const bool more = step + 1 < rounds * kSteps;
        if (more) fetch(step + 1);
#pragma unroll
        for (uint32_t k = 0; k < kCols; ++k) {
            float row[8], expert[8];
#pragma unroll
            for (uint32_t half = 0; half < 2; ++half) {
                const float4 a =
                    *reinterpret_cast<const float4*>(&xs[buffer][quarter][k][32 * half + 4 * ty]);
                const float4 b =
                    *reinterpret_cast<const float4*>(&ws[buffer][quarter][k][32 * half + 4 * tx]);
                row[4 * half] = a.x, row[4 * half + 1] = a.y;
                row[4 * half + 2] = a.z, row[4 * half + 3] = a.w;
                expert[4 * half] = b.x, expert[4 * half + 1] = b.y;
                expert[4 * half + 2] = b.z, expert[4 * half + 3] = b.w;
            }
#pragma unroll
            for (uint32_t i = 0; i < 8; ++i)
#pragma unroll
                for (uint32_t j = 0; j < 8; ++j) sum[i][j] = fmaf(expert[j], row[i], sum[i][j]);
        }
        if (step % kSteps == kSteps - 1) {
#pragma unroll
            for (uint32_t i = 0; i < 8; ++i)
#pragma unroll
                for (uint32_t j = 0; j < 8; ++j) {
                    total[i][j] += sum[i][j];
                    sum[i][j] = 0;
                }
        }
        if (more) put(buffer ^ 1);
        __syncthreads();
    }

    // The quarters' totals in order, through shared memory.
    float* const shared = &xs[0][0][0][0];
    static_assert(sizeof xs >= kTile * kTile * sizeof(float));
    for (uint32_t turn = 0; turn < kRouterTotals; ++turn) {
        if (turn == quarter) {
#pragma unroll
            for (uint32_t i = 0; i < 8; ++i)
#pragma unroll
                for (uint32_t j = 0; j < 8; ++j) {
                    float& place = shared[(i * 8 + j) * kTile + item];
                    const float value = turn == 0 ? total[i][j] : place + total[i][j];
                    const uint32_t row = first_row + i / 4 * 32 + 4 * ty + i % 4;
                    const uint32_t expert = first_expert + j / 4 * 32 + 4 * tx + j % 4;
                    if (turn + 1 < kRouterTotals)
                        place = value;
                    else if (row < args.routes.rows && expert < args.experts)
                        args.logits[size_t{row} * args.experts + expert] = value;
                }
        }
        __syncthreads();
    }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(128)
    route_few_f32(const __grid_constant__ RouteRows args) {
    route_few<true>(args);
}
extern "C" __global__ void __launch_bounds__(128)
    route_few_any(const __grid_constant__ RouteRows args) {
    route_few<false>(args);
}
extern "C" __global__ void __launch_bounds__(256)
    route_logits_f32(const __grid_constant__ RouteRows args) {
    route_logits<true>(args);
}
extern "C" __global__ void __launch_bounds__(256)
    route_logits_any(const __grid_constant__ RouteRows args) {
    route_logits<false>(args);
}

// A block a chunk of kChunkRows rows, a warp two of them. Grid: chunks.
extern "C" __global__ void __launch_bounds__(256)
    route_choose(const __grid_constant__ RouteRows args) {
    __shared__ __align__(16) int32_t expert_of[kChunkRows * kMostUsed];
    const uint32_t lane = threadIdx.x % 32, first = blockIdx.x * kChunkRows;
    const uint32_t rows = min(kChunkRows, args.routes.rows - first);
    for (uint32_t row = threadIdx.x / 32; row < rows; row += 8)
        choose(args, first + row, lane, expert_of + row * args.used);
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < args.experts; e += 256)
        args.counts[size_t{e} * gridDim.x + blockIdx.x] =
            count_of(expert_of, rows * args.used, static_cast<int32_t>(e));
}

// A warp an expert; the last block sums over experts. Grid: experts / 8.
extern "C" __global__ void __launch_bounds__(256)
    route_count(const __grid_constant__ RouteRows args, uint32_t chunks) {
    const uint32_t lane = threadIdx.x % 32, expert = blockIdx.x * 8 + threadIdx.x / 32;
    if (expert < args.experts) {
        int32_t* const counts = args.counts + size_t{expert} * chunks;
        int32_t before = 0;
        for (uint32_t from = 0; from < chunks; from += 32) {
            const uint32_t chunk = from + lane;
            const int32_t count = chunk < chunks ? counts[chunk] : 0;
            int32_t sum = count;
#pragma unroll
            for (int distance = 1; distance < 32; distance *= 2) {
                const int32_t other = __shfl_up_sync(~0u, sum, distance);
                if (lane >= static_cast<uint32_t>(distance)) sum += other;
            }
            if (chunk < chunks) counts[chunk] = before + sum - count;
            before += __shfl_sync(~0u, sum, 31);
        }
        if (lane == 0) args.routes.count[expert] = before;
    }
    if (last_block(args.finished))
        sum_counts<256>(
            args.routes, args.experts, [&](uint32_t e) { return __ldcg(args.routes.count + e); },
            [](uint32_t, int32_t) {});
}

// A block a chunk of rows, threads by expert. Grid: chunks.
extern "C" __global__ void __launch_bounds__(256)
    route_sort(const __grid_constant__ RouteRows args) {
    __shared__ __align__(16) int32_t expert_of[kChunkRows * kMostUsed];
    const uint32_t first = blockIdx.x * kChunkRows * args.used;
    const uint32_t routes = min(kChunkRows * args.used, args.routes.rows * args.used - first);
    for (uint32_t r = threadIdx.x; r < routes; r += 256)
        expert_of[r] = args.routes.expert[first + r];
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < args.experts; e += 256) {
        int32_t at = args.routes.first[e] + args.counts[size_t{e} * gridDim.x + blockIdx.x];
        for (uint32_t r = 0; r < routes; ++r)
            if (expert_of[r] == static_cast<int32_t>(e))
                args.routes.order[at++] = static_cast<int32_t>(first + r);
    }
}

}  // namespace granary::gpu::cuda

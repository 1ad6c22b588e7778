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

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(~0u, value, distance));
    return value;
}

// Of values that are not negative: larger for larger ones and, among equals, lower indices; 0 for
// none. Over the warp.
__device__ __forceinline__ unsigned long long warp_most(unsigned long long rank) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        const unsigned long long other = __shfl_xor_sync(~0u, rank, distance);
        rank = rank > other ? rank : other;
    }
    return rank;
}

// Lane l has experts l, l + 32, ...: kEach of them at most. A NaN anywhere makes every expert
// equally likely, so that a broken file still routes somewhere.
template <uint32_t kEach>
__device__ void choose(const RouteRows& args, uint32_t row, uint32_t lane, int32_t* expert_of) {
    const float* const logits = args.logits + size_t{row} * args.experts;
    float p[kEach];
    float largest = -INFINITY;
#pragma unroll
    for (uint32_t j = 0; j < kEach; ++j) {
        const uint32_t e = lane + 32 * j;
        p[j] = e < args.experts ? __ldcg(logits + e) : -INFINITY;
        largest = fmaxf(largest, p[j]);
    }
    largest = warp_max(largest);
    float sum = 0;
#pragma unroll
    for (uint32_t j = 0; j < kEach; ++j) {
        p[j] = lane + 32 * j < args.experts ? expf(p[j] - largest) : 0.0f;
        sum += p[j];
    }
    sum = warp_sum(sum);
    const bool good = sum >= 1 && sum < INFINITY;
#pragma unroll
    for (uint32_t j = 0; j < kEach; ++j) {
        p[j] = good ? __fdiv_rn(p[j], sum) : 1.0f / static_cast<float>(args.experts);
        if (lane + 32 * j >= args.experts) p[j] = -1;
    }

    const size_t route = size_t{row} * args.used;
    float chosen = 0, weights[(kMostUsed + 31) / 32] = {};
    for (uint32_t rank = 0; rank < args.used; ++rank) {
        unsigned long long best = 0;
#pragma unroll
        for (uint32_t j = 0; j < kEach; ++j) {
            if (p[j] < 0) continue;
            const unsigned long long other = static_cast<unsigned long long>(__float_as_uint(p[j]))
                                                 << 32 |
                                             (~0u - (lane + 32 * j));
            best = best > other ? best : other;
        }
        best = warp_most(best);
        const uint32_t e = ~0u - static_cast<uint32_t>(best);
        const float weight = __uint_as_float(static_cast<uint32_t>(best >> 32));
#pragma unroll
        for (uint32_t j = 0; j < kEach; ++j)
            if (lane + 32 * j == e) p[j] = -1;
        chosen += weight;
        if (rank % 32 == lane) weights[rank / 32] = weight;
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
        choose<4>(args, row, lane, expert_of);
    else if (args.experts <= 512)
        choose<16>(args, row, lane, expert_of);
    else
        choose<kMostExperts / 32>(args, row, lane, expert_of);
}

// How many of the routes go to `expert`.
__device__ __forceinline__ int32_t count_of(const int32_t* expert_of, uint32_t routes,
                                            int32_t expert) {
    int32_t count = 0;
    for (uint32_t r = 0; r < routes; ++r) count += expert_of[r] == expert;
    return count;
}

// first from count; by a block of kThreads, whose earlier writes of count are all visible.
template <uint32_t kThreads>
__device__ void sum_counts(const Routes& routes, uint32_t experts) {
    __shared__ int32_t sums[kThreads / 32];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int32_t before = 0;
    for (uint32_t from = 0; from < experts; from += kThreads) {
        const uint32_t e = from + threadIdx.x;
        const int32_t count = e < experts ? __ldcg(routes.count + e) : 0;
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
        if (e < experts) routes.first[e] = before + sum - count;
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

// A warp an expert for all rows, a lane a slice; the last block does the rest. Grid: experts / 4.
// Work: 2 experts cols operations a row. Bytes: the router once.
template <bool kF32>
__device__ __forceinline__ void route_few(const RouteRows& args) {
    constexpr uint32_t kOctets = kRouterSlice / 8;
    __shared__ int32_t expert_of[kFewRows * kMostUsed];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t expert = blockIdx.x * 4 + warp, rows = args.routes.rows;
    if (expert < args.experts) {
        float total[kFewRows] = {};
        for (uint32_t from = 0; from < args.cols; from += 32 * kRouterSlice) {
            float sum[kFewRows] = {};
#pragma unroll 4
            for (uint32_t i = 0; i < kOctets; ++i) {
                const uint32_t octet = from / 8 + lane * kOctets + i;
                if (octet * 8 >= args.cols) break;
                float w[8];
                router_octet<kF32>(args, expert, octet, w);
#pragma unroll
                for (uint32_t row = 0; row < kFewRows; ++row) {
                    if (row >= rows) break;
                    float x[8];
                    load_octet(args.x + size_t{row} * args.cols, octet, args.cols, x);
#pragma unroll
                    for (uint32_t k = 0; k < 8; ++k) sum[row] = fmaf(w[k], x[k], sum[row]);
                }
            }
#pragma unroll
            for (uint32_t row = 0; row < kFewRows; ++row) {
                if (row >= rows) break;
#pragma unroll
                for (int slice = 0; slice < 32; ++slice)
                    total[row] += __shfl_sync(~0u, sum[row], slice);
            }
        }
#pragma unroll
        for (uint32_t row = 0; row < kFewRows; ++row)
            if (row < rows && lane == 0)
                args.logits[size_t{row} * args.experts + expert] = total[row];
    }
    if (!last_block(args.finished)) return;

    for (uint32_t row = warp; row < rows; row += 4)
        choose(args, row, lane, expert_of + row * args.used);
    __syncthreads();
    const uint32_t routes = rows * args.used;
    for (uint32_t e = threadIdx.x; e < args.experts; e += 128)
        args.routes.count[e] = count_of(expert_of, routes, static_cast<int32_t>(e));
    __syncthreads();
    sum_counts<128>(args.routes, args.experts);
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < args.experts; e += 128) {
        int32_t at = args.routes.first[e];
        for (uint32_t r = 0; r < routes; ++r)
            if (expert_of[r] == static_cast<int32_t>(e))
                args.routes.order[at++] = static_cast<int32_t>(r);
    }
}

// Tiles of 64 rows and 64 experts, 4 x 4 a thread. Grid (rows / 64, experts / 64). Work: 2 experts
// cols operations a row. Bytes: 4 cols a row for every 64 experts.
template <bool kF32>
__device__ __forceinline__ void route_logits(const RouteRows& args) {
    constexpr uint32_t kTile = 64, kCols = 16, kStride = kTile + 4;
    __shared__ __align__(16) float xs[2][kCols][kStride];
    __shared__ __align__(16) float ws[2][kCols][kStride];
    const uint32_t first_row = blockIdx.x * kTile, first_expert = blockIdx.y * kTile;
    // Half of the threads fetch x, the other half weights: an octet each.
    const bool fetches_x = threadIdx.x < 128;
    const uint32_t item = threadIdx.x % 128 / 2, half = threadIdx.x % 2;
    float fetched[8];
    const auto fetch = [&](uint32_t col) {
        const uint32_t octet = col / 8 + half;
        const bool there =
            octet * 8 < args.cols &&
            (fetches_x ? first_row + item < args.routes.rows : first_expert + item < args.experts);
        if (!there) {
#pragma unroll
            for (float& value : fetched) value = 0;
        } else if (fetches_x) {
            load_octet(args.x + size_t{first_row + item} * args.cols, octet, args.cols, fetched);
        } else {
            router_octet<kF32>(args, first_expert + item, octet, fetched);
        }
    };
    const auto put = [&](uint32_t buffer) {
        float(*const to)[kStride] = fetches_x ? xs[buffer] : ws[buffer];
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) to[half * 8 + i][item] = fetched[i];
    };
    const uint32_t ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    float sum[4][4] = {}, total[4][4] = {};
    fetch(0);
    put(0);
    __syncthreads();
    for (uint32_t col = 0, buffer = 0; col < args.cols; col += kCols, buffer ^= 1) {
        const bool more = col + kCols < args.cols;
        if (more) fetch(col + kCols);
#pragma unroll
        for (uint32_t k = 0; k < kCols; ++k) {
            const float4 a = *reinterpret_cast<const float4*>(&xs[buffer][k][4 * ty]);
            const float4 b = *reinterpret_cast<const float4*>(&ws[buffer][k][4 * tx]);
            const float row[4] = {a.x, a.y, a.z, a.w}, expert[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i)
#pragma unroll
                for (uint32_t j = 0; j < 4; ++j) sum[i][j] = fmaf(expert[j], row[i], sum[i][j]);
        }
        if (!more || (col + kCols) % kRouterSlice == 0) {
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i)
#pragma unroll
                for (uint32_t j = 0; j < 4; ++j) {
                    total[i][j] += sum[i][j];
                    sum[i][j] = 0;
                }
        }
        if (more) put(buffer ^ 1);
        __syncthreads();
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i)
#pragma unroll
        for (uint32_t j = 0; j < 4; ++j) {
            const uint32_t row = first_row + 4 * ty + i, expert = first_expert + 4 * tx + j;
            if (row < args.routes.rows && expert < args.experts)
                args.logits[size_t{row} * args.experts + expert] = total[i][j];
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
    __shared__ int32_t expert_of[kChunkRows * kMostUsed];
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
    if (last_block(args.finished)) sum_counts<256>(args.routes, args.experts);
}

// A block a chunk of rows, threads by expert. Grid: chunks.
extern "C" __global__ void __launch_bounds__(256)
    route_sort(const __grid_constant__ RouteRows args) {
    __shared__ int32_t expert_of[kChunkRows * kMostUsed];
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

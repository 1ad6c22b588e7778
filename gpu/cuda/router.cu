// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/cuda/router.cuh"

namespace granary::gpu::cuda {
namespace {

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

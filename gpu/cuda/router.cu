// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/cuda/mma.cuh"
#include "gpu/cuda/router.cuh"

namespace granary::gpu::cuda {
namespace {

// Both factors are split into f16 and what that leaves, f16 too; of the four products the one of
// both rests, 2^-22 of a product, is left out. Factors lie as [row][first halves of 32 columns,
// second ones], 128 bytes swizzled.
constexpr uint32_t kRouterSlice = kBefore80 ? 128 : 256;  // columns
constexpr uint32_t kTileRows = 64, kTileExperts = 128, kStep = 32, kRowBytes = 128;
// Weights are small: so that the rests are no denormals.
constexpr float kRaise = 64;

__device__ __forceinline__ void put_split(std::byte* tile, uint32_t row, uint32_t octet,
                                          const float (&v)[8], float factor) {
    uint32_t first[4], second[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        const float a = v[2 * i] * factor, b = v[2 * i + 1] * factor;
        const __half2 halves = __floats2half2_rn(a, b);
        const float2 back = __half22float2(halves);
        first[i] = bits(halves);
        second[i] = bits(__floats2half2_rn(a - back.x, b - back.y));
    }
    *reinterpret_cast<uint4*>(tile + swizzled(row, octet)) =
        make_uint4(first[0], first[1], first[2], first[3]);
    *reinterpret_cast<uint4*>(tile + swizzled(row, 4 + octet)) =
        make_uint4(second[0], second[1], second[2], second[3]);
}

// Tiles of 64 rows and 128 experts, 32 x 32 a warp. Grid: (rows / 64, experts / 128). Work: 6
// experts cols operations a row. Bytes, from L2: 4 cols a row for every 128 experts, the router for
// every 64 rows.
template <bool kF32>
__device__ __forceinline__ void route_logits(const RouteRows& args) {
    __shared__ __align__(128) std::byte xs[2][kTileRows * kRowBytes];
    __shared__ __align__(128) std::byte ws[2][kTileExperts * kRowBytes];
    const uint32_t first_row = blockIdx.x * kTileRows, first_expert = blockIdx.y * kTileExperts;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    // A thread fetches an octet of a row and of two experts.
    const uint32_t item = threadIdx.x / 4, place = threadIdx.x % 4;
    float x[8], w[2][8];
    const auto fetch = [&](uint32_t step) {
        const uint32_t octet = step * (kStep / 8) + place;
        const bool there = octet * 8 < args.cols;
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) x[i] = w[0][i] = w[1][i] = 0;
        if (there && first_row + item < args.routes.rows)
            load_octet(args.x + size_t{first_row + item} * args.cols, octet, args.cols, x);
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i)
            if (there && first_expert + item + 64 * i < args.experts)
                router_octet<kF32>(args, first_expert + item + 64 * i, octet, w[i]);
    };
    const auto put = [&](uint32_t buffer) {
        put_split(xs[buffer], item, place, x, 1);
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i) put_split(ws[buffer], item + 64 * i, place, w[i], kRaise);
    };

    const uint32_t row = warp % 2 * 32, expert = warp / 2 * 32;
    float sum[2][4][4] = {}, total[2][4][4] = {};
    const auto multiply = [&](uint32_t buffer) {
        const uint32_t of_x = shared_address(xs[buffer]), of_w = shared_address(ws[buffer]);
#pragma unroll
        for (uint32_t k = 0; k < kStep / 16; ++k) {
            uint32_t a[2][2][4], b[2][2][4];  // [first or second halves][16 rows or experts]
#pragma unroll
            for (uint32_t part = 0; part < 2; ++part)
#pragma unroll
                for (uint32_t i = 0; i < 2; ++i) {
                    const uint32_t piece = 4 * part + 2 * k;
                    load_matrices(a[part][i],
                                  of_x + swizzled(row + 16 * i + lane % 16, piece + lane / 16));
                    load_matrices(b[part][i],
                                  of_w + swizzled(expert + 16 * i + lane % 8 + lane / 16 * 8,
                                                  piece + lane / 8 % 2));
                }
#pragma unroll
            for (uint32_t which = 0; which < 3; ++which)
#pragma unroll
                for (uint32_t i = 0; i < 2; ++i)
#pragma unroll
                    for (uint32_t j = 0; j < 4; ++j) {
                        const uint32_t(&right)[4] = b[which == 1][j / 2];
                        mma_16x8x16(sum[i][j], a[which == 0][i], right[j % 2 * 2],
                                    right[j % 2 * 2 + 1]);
                    }
        }
    };
    const auto add_up = [&] {
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i)
#pragma unroll
            for (uint32_t j = 0; j < 4; ++j)
#pragma unroll
                for (uint32_t c = 0; c < 4; ++c) {
                    total[i][j][c] += sum[i][j][c];
                    sum[i][j][c] = 0;
                }
    };

    const uint32_t steps = (args.cols + kStep - 1) / kStep;
    fetch(0);
    put(0);
    __syncthreads();
    for (uint32_t step = 0; step < steps; ++step) {
        const bool more = step + 1 < steps;
        if (more) fetch(step + 1);
        multiply(step % 2);
        if (step % (kRouterSlice / kStep) == kRouterSlice / kStep - 1) add_up();
        if (more) put((step + 1) % 2);
        __syncthreads();
    }
    add_up();
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i)
#pragma unroll
        for (uint32_t j = 0; j < 4; ++j)
#pragma unroll
            for (uint32_t c = 0; c < 4; ++c) {
                const uint32_t r = first_row + row + 16 * i + lane / 4 + c / 2 * 8;
                const uint32_t e = first_expert + expert + 8 * j + lane % 4 * 2 + c % 2;
                if (r < args.routes.rows && e < args.experts)
                    args.logits[size_t{r} * args.experts + e] = total[i][j][c] * (1 / kRaise);
            }
}

// first from counts, by a block of kThreads.
template <uint32_t kThreads>
__device__ __forceinline__ void sum_counts(const Routes& routes, uint32_t experts) {
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
        choose_routes(args, first + row, lane, expert_of + row * args.used);
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

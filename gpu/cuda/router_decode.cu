// SPDX-License-Identifier: GPL-3.0-or-later
// The norm of a decode step's rows, their routes and the experts that they need, in one launch.
//
// A warp an expert for all rows: its weights stand in registers before the rows of x are there, and
// a lane has eight octets of 2,048 columns, sums of eight products added up in order. The last
// block to finish chooses. Work: 2 experts cols operations a row. Bytes: the router once, 1 MB of
// 128 experts and 2,048 columns.
#include "gpu/cuda/early.cuh"
#include "gpu/cuda/expert_fetch.cuh"
#include "gpu/cuda/norm_decode.cuh"
#include "gpu/cuda/router.cuh"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kOctets = 8, kWarpOctets = 32 * kOctets;

// The logits of a block's four experts. Where x is still to be normed, the router's weights are
// multiplied by the norm's before and sums by the row's factor afterwards.
template <bool kF32>
__device__ __forceinline__ void logits(const RouteRows& args, const RouteNorm& norm,
                                       uint32_t block) {
    const uint32_t lane = threadIdx.x % 32, rows = args.routes.rows;
    const uint32_t expert = block * 4 + threadIdx.x / 32, octets = (args.cols + 7) / 8;
    const float* const all = norm.x ? norm.x : args.x;
    float w[kOctets][8];
    bool first = true;
    for (uint32_t row = 0; row < rows; ++row) {
        float sum = 0, squares = 0;
        for (uint32_t from = lane; from < octets + lane; from += kWarpOctets) {
            if (first || octets > kWarpOctets) {
#pragma unroll
                for (uint32_t i = 0; i < kOctets; ++i) {
#pragma unroll
                    for (float& value : w[i]) value = 0;
                    if (expert < args.experts && from + 32 * i < octets)
                        router_octet<kF32>(args, expert, from + 32 * i, w[i]);
                    if (norm.x) {
                        float more[8];
                        load_octet(norm.weight, from + 32 * i, args.cols, more);
#pragma unroll
                        for (uint32_t j = 0; j < 8; ++j) w[i][j] *= more[j];
                    }
                }
            }
            if (first) wait_for_kernels_ahead();
            first = false;
            float x[kOctets][8];
#pragma unroll
            for (uint32_t i = 0; i < kOctets; ++i)
                load_octet(all + size_t{row} * args.cols, from + 32 * i, args.cols, x[i]);
#pragma unroll
            for (uint32_t i = 0; i < kOctets; ++i) {
                float part = 0, square = 0;
#pragma unroll
                for (uint32_t j = 0; j < 8; ++j) {
                    part = fmaf(w[i][j], x[i][j], part);
                    square = fmaf(x[i][j], x[i][j], square);
                }
                sum += part;
                squares += square;
            }
        }
        sum = warp_sum(sum);
        if (norm.x)
            sum *= 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(args.cols) + norm.eps);
        if (expert < args.experts && lane == 0)
            args.logits[size_t{row} * args.experts + expert] = sum;
    }
}

// A row's norm and its codes, by a block.
__device__ __forceinline__ void norm_of(const RouteRows& args, const RouteNorm& norm,
                                        uint32_t number) {
    float w[4];
    load_first_weight(norm.weight, args.cols, w);
    wait_for_kernels_ahead();
    const float* const row = norm.x + size_t{number} * args.cols;
    norm_row<128>([&](uint32_t quad, float(&v)[4]) { load_quad(row, quad, args.cols, v); }, row,
                  args.cols, norm.weight, w, norm.eps,
                  const_cast<float*>(args.x) + size_t{number} * args.cols,
                  norm.codes ? norm.codes + number * ordered_row_bytes(args.cols) : nullptr);
}

template <bool kF32>
__device__ __forceinline__ void route_decode(const RouteRows& args, const RouteNorm& norm,
                                             const FetchExperts& job) {
    extern __shared__ unsigned long long keys[];  // [slots]
    __shared__ __align__(16) int32_t expert_of[kFewRows * kMostUsed];
    let_next_begin();
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, rows = args.routes.rows;
    const uint32_t norms = norm.x ? rows : 0;
    if (blockIdx.x < norms)
        norm_of(args, norm, blockIdx.x);
    else
        logits<kF32>(args, norm, blockIdx.x - norms);
    if (!last_block(args.finished)) return;

    for (uint32_t row = warp; row < rows; row += 4)
        choose(args, row, lane, expert_of + row * args.used);
    __syncthreads();
    const uint32_t routes = rows * args.used;
    const auto count = [&](uint32_t e) {
        return count_of(expert_of, routes, static_cast<int32_t>(e));
    };
    sum_counts<128>(
        args.routes, args.experts, [&](uint32_t e) { return args.routes.count[e] = count(e); },
        [&](uint32_t e, int32_t at) {
            for (uint32_t r = 0; r < routes; ++r)
                if (expert_of[r] == static_cast<int32_t>(e))
                    args.routes.order[at++] = static_cast<int32_t>(r);
        });
    if (job.cache.slots == 0) return;
    fetch(job, routes, count, keys, [&](uint16_t* missed, uint32_t misses) {
        return job.share.request ? ask_cpu(job, args, expert_of, missed, misses) : misses;
    });
}

}  // namespace

// Grid: experts / 4, and a block for each row that is to be normed. Dynamic shared memory: 8 bytes
// a slot.
extern "C" __global__ void __launch_bounds__(128)
    route_decode_f32(const __grid_constant__ RouteRows args, const __grid_constant__ RouteNorm norm,
                     const __grid_constant__ FetchExperts job) {
    route_decode<true>(args, norm, job);
}
extern "C" __global__ void __launch_bounds__(128)
    route_decode_any(const __grid_constant__ RouteRows args, const __grid_constant__ RouteNorm norm,
                     const __grid_constant__ FetchExperts job) {
    route_decode<false>(args, norm, job);
}

}  // namespace granary::gpu::cuda

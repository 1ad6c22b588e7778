// SPDX-License-Identifier: GPL-3.0-or-later
// The routes of a decode step and the experts that it needs, in one launch.
//
// A warp an expert for all rows: its weights stand in registers before the rows of x are there, and
// a lane has eight octets of 2,048 columns, sums of eight products added up in order. The last
// block to finish chooses. Work: 2 experts cols operations a row. Bytes: the router once, 1 MB of
// 128 experts and 2,048 columns.
#include "gpu/cuda/early.cuh"
#include "gpu/cuda/expert_fetch.cuh"
#include "gpu/cuda/router.cuh"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kOctets = 8, kWarpOctets = 32 * kOctets;

template <bool kF32>
__device__ __forceinline__ void route_decode(const RouteRows& args, const FetchExperts& job) {
    extern __shared__ unsigned long long keys[];  // [slots]
    __shared__ __align__(16) int32_t expert_of[kFewRows * kMostUsed];
    let_next_begin();
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, rows = args.routes.rows;
    const uint32_t expert = blockIdx.x * 4 + warp, octets = (args.cols + 7) / 8;
    float w[kOctets][8];
    bool first = true;
    for (uint32_t row = 0; row < rows; ++row) {
        float sum = 0;
        for (uint32_t from = lane; from < octets + lane; from += kWarpOctets) {
            if (first || octets > kWarpOctets) {
#pragma unroll
                for (uint32_t i = 0; i < kOctets; ++i) {
#pragma unroll
                    for (float& value : w[i]) value = 0;
                    if (expert < args.experts && from + 32 * i < octets)
                        router_octet<kF32>(args, expert, from + 32 * i, w[i]);
                }
            }
            if (first) wait_for_kernels_ahead();
            first = false;
            float x[kOctets][8];
#pragma unroll
            for (uint32_t i = 0; i < kOctets; ++i)
                load_octet(args.x + size_t{row} * args.cols, from + 32 * i, args.cols, x[i]);
#pragma unroll
            for (uint32_t i = 0; i < kOctets; ++i) {
                float part = 0;
#pragma unroll
                for (uint32_t j = 0; j < 8; ++j) part = fmaf(w[i][j], x[i][j], part);
                sum += part;
            }
        }
        sum = warp_sum(sum);
        if (expert < args.experts && lane == 0)
            args.logits[size_t{row} * args.experts + expert] = sum;
    }
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

// Grid: experts / 4. Dynamic shared memory: 8 bytes a slot.
extern "C" __global__ void __launch_bounds__(128)
    route_decode_f32(const __grid_constant__ RouteRows args,
                     const __grid_constant__ FetchExperts job) {
    route_decode<true>(args, job);
}
extern "C" __global__ void __launch_bounds__(128)
    route_decode_any(const __grid_constant__ RouteRows args,
                     const __grid_constant__ FetchExperts job) {
    route_decode<false>(args, job);
}

}  // namespace granary::gpu::cuda

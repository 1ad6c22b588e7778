// SPDX-License-Identifier: GPL-3.0-or-later
// Which experts are in the cache, and how warm.
#include "gpu/cuda/early.cuh"
#include "gpu/cuda/expert_fetch.cuh"

namespace granary::gpu::cuda {

// A warp an expert counts its routes among `routes` of them. Grid: experts / 8.
extern "C" __global__ void __launch_bounds__(256)
    expert_note(const __grid_constant__ ExpertCacheView cache, const int32_t* route_expert,
                uint32_t routes, float decay, uint32_t tick) {
    const uint32_t expert = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (expert >= cache.experts) return;
    uint32_t picks = 0;
#pragma unroll 16
    for (uint32_t r = lane; r < routes; r += 32)
        picks += route_expert[r] == static_cast<int32_t>(expert);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        picks += __shfl_xor_sync(~0u, picks, distance);
    if (lane != 0) return;
    cache.heat[expert] = warmed(cache.heat[expert], decay, static_cast<int32_t>(picks));
    if (picks > 0) cache.last_use[expert] = tick;
}

// One block. Dynamic shared memory: 8 bytes a slot.
extern "C" __global__ void __launch_bounds__(1024)
    expert_fetch(const __grid_constant__ FetchExperts job, const int32_t* count, uint32_t routes) {
    extern __shared__ unsigned long long keys[];
    let_next_begin();
    wait_for_kernels_ahead();
    fetch(
        job, routes, [&](uint32_t e) { return count[e]; }, keys);
}

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Which experts are in the cache, and how warm.
#include "gpu/cuda/early.cuh"
#include "gpu/cuda/expert_fetch.cuh"
#include "gpu/cuda/router.cuh"

namespace granary::gpu::cuda {

// A block counts the routes of eight experts among `routes` of them, kNoteRoutes a thread in
// flight. Grid: experts / 8. Bytes: the routes once a block, from the L2 cache.
extern "C" __global__ void __launch_bounds__(256)
    expert_note(const __grid_constant__ ExpertCacheView cache, const int32_t* route_expert,
                uint32_t routes, float decay, uint32_t tick) {
    constexpr uint32_t kNoteRoutes = 16;
    __shared__ uint32_t total[8];
    const uint32_t first_expert = blockIdx.x * 8, lane = threadIdx.x % 32;
    if (threadIdx.x < 8) total[threadIdx.x] = 0;
    __syncthreads();
    uint32_t picks[8] = {};
    for (uint32_t first = threadIdx.x; first < routes; first += 256 * kNoteRoutes) {
        uint32_t place[kNoteRoutes];
#pragma unroll
        for (uint32_t i = 0; i < kNoteRoutes; ++i) {
            const uint32_t r = first + 256 * i;
            place[i] = r < routes ? static_cast<uint32_t>(route_expert[r]) - first_expert : 8;
        }
#pragma unroll
        for (uint32_t i = 0; i < kNoteRoutes; ++i)
#pragma unroll
            for (uint32_t e = 0; e < 8; ++e) picks[e] += place[i] == e;
    }
#pragma unroll
    for (uint32_t e = 0; e < 8; ++e) {
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2)
            picks[e] += __shfl_xor_sync(~0u, picks[e], distance);
        if (lane == e) atomicAdd(&total[e], picks[e]);  // of whole numbers: in any order
    }
    __syncthreads();
    const uint32_t expert = first_expert + threadIdx.x;
    if (threadIdx.x >= 8 || expert >= cache.experts) return;
    const uint32_t all = total[threadIdx.x];
    cache.heat[expert] = warmed(cache.heat[expert], decay, static_cast<int32_t>(all));
    if (all > 0) cache.last_use[expert] = tick;
}

// One block. Dynamic shared memory: 8 bytes a slot.
extern "C" __global__ void __launch_bounds__(1024)
    expert_fetch(const __grid_constant__ FetchExperts job, const int32_t* route_expert,
                 uint32_t routes) {
    extern __shared__ unsigned long long keys[];
    __shared__ __align__(16) int32_t expert_of[kFewRows * kMostUsed];
    let_next_begin();
    KnownExperts<kMostExperts / 1024> known;
    known.load(job);
    wait_for_kernels_ahead();
    for (uint32_t r = threadIdx.x; r < routes; r += blockDim.x) expert_of[r] = route_expert[r];
    __syncthreads();
    fetch(
        job, routes, known,
        [&](uint32_t e) { return count_of(expert_of, routes, static_cast<int32_t>(e)); }, keys,
        [](const uint16_t*, uint32_t misses) { return misses; });
}

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Which experts are in the cache, and how warm.
#include "gpu/cuda/early.cuh"
#include "gpu/cuda/expert_fetch.cuh"
#include "gpu/cuda/router.cuh"

namespace granary::gpu::cuda {
namespace {

template <class T>
__device__ __forceinline__ T* behind(T* first, size_t bytes) {
    return reinterpret_cast<T*>(reinterpret_cast<std::byte*>(first) + bytes);
}

}  // namespace

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

// What fetch notes of a step, for caches that are complete: a block a layer. Bytes: 12 an expert,
// all layers side by side.
extern "C" __global__ void __launch_bounds__(128)
    expert_note_picks(const __grid_constant__ NotePicks job) {
    __shared__ uint32_t hits;
    if (threadIdx.x == 0) hits = 0;
    let_next_begin();
    wait_for_kernels_ahead();
    __syncthreads();
    const size_t bytes = blockIdx.x * job.stride;
    const int32_t* const picked = behind(job.first.picks, bytes);
    float* const heat = behind(job.first.heat, bytes);
    uint32_t* const last_use = behind(job.first.last_use, bytes);
    for (uint32_t e = threadIdx.x; e < job.first.experts; e += blockDim.x) {
        int32_t picks = 0;
        for (uint32_t i = 0; i < job.routes; ++i) picks += picked[i] == static_cast<int32_t>(e);
        heat[e] = warmed(heat[e], kHeatDecay, picks);
        if (picks == 0) continue;
        last_use[e] = job.place->tick;
        atomicAdd(&hits, 1);
    }
    __syncthreads();
    if (threadIdx.x == 0) add_to_counter(behind(job.first.hits, bytes), hits);
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

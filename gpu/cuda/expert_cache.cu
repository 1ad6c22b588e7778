// SPDX-License-Identifier: GPL-3.0-or-later
// Which experts are in the cache, and how warm: what gpu/host/expert_cache.cpp does, to the same
// bits, by one block.
#include "gpu/cuda/gather.h"

namespace granary::gpu::cuda {
namespace {

// Each decode call a pick counts 1 and older picks 1/256 less: half after 177 calls.
constexpr float kHeatDecay = 1.0f - 1.0f / 256;

__device__ __forceinline__ float warmed(float heat, float decay, int32_t picks) {
    heat = __fmul_rn(heat, decay);
    for (int32_t i = 0; i < picks; ++i) heat = __fadd_rn(heat, 1.0f);
    return heat;
}

__device__ __forceinline__ std::byte* writable(const std::byte* pointer) {
    return const_cast<std::byte*>(pointer);
}

}  // namespace

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

// One block. Victims are what the host finds one after the other: an evicted slot holds an expert
// of this call afterwards, so miss number m takes the slot that is number m by (empty, heat, slot).
// pieces: [3 * most]. Dynamic shared memory: 8 bytes a slot.
extern "C" __global__ void __launch_bounds__(1024)
    expert_fetch(const __grid_constant__ ExpertCacheView cache, const int32_t* count,
                 uint32_t routes, uint32_t most, const DecodePlace* place, GatherPiece* pieces) {
    constexpr unsigned long long kNotThis = ~0ull;
    extern __shared__ unsigned long long keys[];  // [slots] lowest first
    __shared__ uint16_t missed[512];              // routes are at most so many
    __shared__ uint32_t usable, hits, misses, free_slots, warp_misses[32];
    const uint32_t thread = threadIdx.x, threads = blockDim.x, lane = thread % 32;
    const uint32_t tick = place->tick;
    if (thread == 0) usable = hits = misses = free_slots = 0;
    __syncthreads();

    uint32_t my_usable = 0, my_hits = 0;
    for (uint32_t slot = thread; slot < cache.slots; slot += threads)
        my_usable += cache.usable[slot] != 0;
    if (my_usable) atomicAdd(&usable, my_usable);
    // Misses by number, in the order of experts.
    for (uint32_t from = 0; from < cache.experts; from += threads) {
        const uint32_t e = from + thread;
        bool miss = false;
        if (e < cache.experts) {
            const int32_t picks = count[e];
            cache.heat[e] = warmed(cache.heat[e], kHeatDecay, picks);
            if (picks > 0) {
                cache.last_use[e] = tick;
                miss = cache.slot_of[e] < 0;
                my_hits += !miss;
            }
        }
        const uint32_t in_warp = __ballot_sync(~0u, miss);
        if (lane == 0) warp_misses[thread / 32] = __popc(in_warp);
        __syncthreads();
        uint32_t number = misses + __popc(in_warp & ((1u << lane) - 1));
        for (uint32_t w = 0; w < thread / 32; ++w) number += warp_misses[w];
        if (miss) {
            missed[number] = static_cast<uint16_t>(e);
            cache.entries[e] = cache.home[e];  // until it has a slot
        }
        __syncthreads();
        if (thread == threads - 1) misses = number + (miss ? 1 : 0);
        __syncthreads();
    }
    if (my_hits) atomicAdd(&hits, my_hits);

    const bool fits = usable >= routes;
    if (misses > 0 && fits) {
        uint32_t mine = 0;
        for (uint32_t slot = thread; slot < cache.slots; slot += threads) {
            unsigned long long key = kNotThis;
            if (cache.usable[slot]) {
                const int32_t expert = cache.expert_in[slot];
                if (expert < 0)
                    key = slot;
                else if (cache.last_use[expert] != tick)
                    key = static_cast<unsigned long long>(__float_as_uint(cache.heat[expert]) + 1)
                              << 32 |
                          slot;
            }
            keys[slot] = key;
            mine += key != kNotThis;
        }
        if (mine) atomicAdd(&free_slots, mine);
    }
    __syncthreads();

    const uint32_t copies = fits ? min(misses, free_slots) : 0;
    if (copies > 0) {
        for (uint32_t slot = thread; slot < cache.slots; slot += threads) {
            const unsigned long long key = keys[slot];
            if (key == kNotThis) continue;
            uint32_t number = 0;
            for (uint32_t i = 0; i < cache.slots; ++i) number += keys[i] < key;
            if (number >= copies) continue;
            const uint32_t expert = missed[number];
            const int32_t evicted = cache.expert_in[slot];
            if (evicted >= 0) {
                cache.slot_of[evicted] = -1;
                cache.entries[evicted] = cache.home[evicted];
            }
            std::byte* const base = cache.slot_base[slot];
            const ExpertEntry from = cache.home[expert];
            const ExpertEntry entry{base, base + cache.up_offset, base + cache.down_offset};
            cache.entries[expert] = entry;
            cache.slot_of[expert] = static_cast<int32_t>(slot);
            cache.expert_in[slot] = static_cast<int32_t>(expert);
            pieces[3 * number] = {from.gate, writable(entry.gate), cache.gate_bytes};
            pieces[3 * number + 1] = {from.up, writable(entry.up), cache.up_bytes};
            pieces[3 * number + 2] = {from.down, writable(entry.down), cache.down_bytes};
        }
    }
    for (uint32_t i = 3 * copies + thread; i < 3 * most; i += threads)
        pieces[i] = {nullptr, nullptr, 0};
    if (thread == 0) {
        *cache.hits += hits;
        *cache.misses += misses;
        *cache.bytes_copied += copies * (cache.gate_bytes + cache.up_bytes + cache.down_bytes);
    }
}

}  // namespace granary::gpu::cuda

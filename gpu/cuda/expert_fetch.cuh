// SPDX-License-Identifier: GPL-3.0-or-later
// Which experts a decode step finds in the cache, and which take whose slots: what
// gpu/host/expert_cache.cpp does, to the same bits, by one block.
#pragma once

#include "gpu/cuda/cpu_share.cuh"

namespace granary::gpu::cuda {
namespace {

// Each decode call a pick counts 1 and older picks 1/256 less: half after 177 calls.
constexpr float kHeatDecay = 1.0f - 1.0f / 256;

__device__ __forceinline__ float warmed(float heat, float decay, int32_t picks) {
    heat = __fmul_rn(heat, decay);
    for (int32_t i = 0; i < picks; ++i) heat = __fadd_rn(heat, 1.0f);
    return heat;
}

__device__ __forceinline__ void add_to_counter(uint64_t* counter, uint64_t more) {
    static_assert(sizeof(unsigned long long) == sizeof *counter);
    atomicAdd(reinterpret_cast<unsigned long long*>(counter),
              static_cast<unsigned long long>(more));
}

__device__ __forceinline__ std::byte* writable(const std::byte* pointer) {
    return const_cast<std::byte*>(pointer);
}

// Gives missed experts slots. Victims are what the host finds one after the other: an evicted slot
// holds an expert of this call afterwards, so miss number m takes the slot that is number m by
// (empty, heat, slot). keys: [slots] in shared memory. Answers how many are to be copied.
__device__ __noinline__ uint32_t place_misses(const FetchExperts& job, const uint16_t* missed,
                                              uint32_t misses, uint32_t routes,
                                              unsigned long long* keys) {
    constexpr unsigned long long kNotThis = ~0ull;
    __shared__ uint32_t usable, free_slots;
    const ExpertCacheView& cache = job.cache;
    const uint32_t thread = threadIdx.x, threads = blockDim.x, tick = job.place->tick;
    if (thread == 0) usable = free_slots = 0;
    __syncthreads();
    uint32_t my_usable = 0, my_free = 0;
    for (uint32_t slot = thread; slot < cache.slots; slot += threads) {
        unsigned long long key = kNotThis;
        if (cache.usable[slot]) {
            ++my_usable;
            const int32_t expert = cache.expert_in[slot];
            if (expert < 0)
                key = slot;
            else if (cache.last_use[expert] != tick)
                key = static_cast<unsigned long long>(__float_as_uint(cache.heat[expert]) + 1)
                          << 32 |
                      slot;
        }
        keys[slot] = key;
        my_free += key != kNotThis;
    }
    if (my_usable) atomicAdd(&usable, my_usable);
    if (my_free) atomicAdd(&free_slots, my_free);
    __syncthreads();

    const uint32_t copies = usable >= routes ? min(misses, free_slots) : 0;
    if (copies == 0) return 0;
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
        const ExpertEntry from = job.share.stage ? staged_entry(job, number) : cache.home[expert];
        const ExpertEntry entry{base, base + cache.up_offset, base + cache.down_offset};
        cache.entries[expert] = entry;
        cache.slot_of[expert] = static_cast<int32_t>(slot);
        cache.expert_in[slot] = static_cast<int32_t>(expert);
        GatherPiece* const pieces = job.pieces + 3 * number;
        pieces[0] = {from.gate, writable(entry.gate), cache.gate_bytes};
        pieces[1] = {from.up, writable(entry.up), cache.up_bytes};
        pieces[2] = {from.down, writable(entry.down), cache.down_bytes};
    }
    return copies;
}

// What a thread of a fetch knows of its experts, thread, thread + threads, .., before their routes
// are there: it stands since the layer's last step, which has long ended, and only this one changes
// it.
template <uint32_t kEach>
struct KnownExperts {
    uint32_t tick;
    float heat[kEach];
    int32_t slot[kEach];

    __device__ __forceinline__ void load(const FetchExperts& job) {
        tick = __ldcg(&job.place->tick);
#pragma unroll
        for (uint32_t i = 0; i < kEach; ++i) {
            const uint32_t e = threadIdx.x + i * blockDim.x;
            if (e < job.cache.experts) of(job, e, heat[i], slot[i]);
        }
    }
    // Of expert e, the thread's i-th.
    __device__ __forceinline__ void get(const FetchExperts& job, uint32_t i, uint32_t e,
                                        float& its_heat, int32_t& its_slot) const {
        if (i >= kEach) return of(job, e, its_heat, its_slot);
#pragma unroll
        for (uint32_t j = 0; j < kEach; ++j)
            if (i == j) its_heat = heat[j], its_slot = slot[j];
    }

  private:
    __device__ __forceinline__ static void of(const FetchExperts& job, uint32_t e, float& its_heat,
                                              int32_t& its_slot) {
        its_heat = __ldcg(job.cache.heat + e);
        its_slot = __ldcg(job.cache.slot_of + e);
    }
};

// count_of(e): routes to expert e, of `routes` in all. leave(missed, misses): takes away those that
// others compute, and answers how many stay.
template <class Known, class Count, class Leave>
__device__ __forceinline__ void fetch(const FetchExperts& job, uint32_t routes, const Known& known,
                                      const Count& count_of_expert, unsigned long long* keys,
                                      const Leave& leave) {
    __shared__ uint16_t missed[512];  // routes are at most so many
    __shared__ uint32_t in_warp[32];
    const ExpertCacheView& cache = job.cache;
    const uint32_t thread = threadIdx.x, threads = blockDim.x, lane = thread % 32;
    // Misses by number, in the order of experts.
    uint32_t misses = 0, hits = 0;
    for (uint32_t from = 0, i = 0; from < cache.experts; from += threads, ++i) {
        const uint32_t e = from + thread;
        bool miss = false, hit = false;
        if (e < cache.experts) {
            float heat = 0;
            int32_t slot = -1;
            known.get(job, i, e, heat, slot);
            const int32_t picks = count_of_expert(e);
            cache.heat[e] = warmed(heat, kHeatDecay, picks);
            if (picks > 0) {
                cache.last_use[e] = known.tick;
                miss = slot < 0;
                hit = !miss;
            }
        }
        hits += __syncthreads_count(hit);
        const uint32_t more = __syncthreads_count(miss);
        if (more == 0) continue;
        const uint32_t missing = __ballot_sync(~0u, miss);
        if (lane == 0) in_warp[thread / 32] = __popc(missing);
        __syncthreads();
        uint32_t number = misses + __popc(missing & ((1u << lane) - 1));
#pragma unroll 1
        for (uint32_t w = 0; w < thread / 32; ++w) number += in_warp[w];
        if (miss) {
            missed[number] = static_cast<uint16_t>(e);
            cache.entries[e] = cache.home[e];  // until it has a slot
        }
        misses += more;
        __syncthreads();
    }
    const uint32_t stay = leave(missed, misses);
    if (stay > 0 && job.share.stage) {
        if (thread < stay) cache.entries[missed[thread]] = staged_entry(job, thread);
        __syncthreads();
    }
    const uint32_t copies = stay > 0 ? place_misses(job, missed, stay, routes, keys) : 0;
    for (uint32_t i = 3 * copies + thread; i < 3 * job.most; i += threads) job.pieces[i].bytes = 0;
    if (thread == 0) {  // without waiting for what they were
        add_to_counter(cache.hits, hits);
        if (misses == 0) return;
        add_to_counter(cache.misses, misses);
        add_to_counter(cache.bytes_copied,
                       copies * (cache.gate_bytes + cache.up_bytes + cache.down_bytes));
    }
}

}  // namespace
}  // namespace granary::gpu::cuda

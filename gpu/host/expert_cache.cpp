// SPDX-License-Identifier: GPL-3.0-or-later
// Experts on their way from host memory into the cache.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "gpu/host/host_kernels.h"

namespace granary::gpu::host {
namespace {

// Each decode call a pick counts 1 and older picks 1/256 less: half after 177 calls.
constexpr float kHeatDecay = 1.0f - 1.0f / 256;

// A slice of copying small enough to share out.
constexpr size_t kSlice = 64 << 10;

struct Copy {
    std::byte* to;
    const std::byte* from;
    size_t bytes;
};

// Copies slice number `slice` of the parts; false when there are fewer.
bool copy_slice(std::span<const Copy> parts, size_t slice) {
    for (const Copy& part : parts) {
        const size_t slices = (part.bytes + kSlice - 1) / kSlice;
        if (slice < slices) {
            const size_t at = slice * kSlice;
            std::memcpy(part.to + at, part.from + at, std::min(kSlice, part.bytes - at));
            return true;
        }
        slice -= slices;
    }
    return false;
}

// Copies one expert with all threads.
void copy_expert(ThreadPool& pool, const ExpertCacheView& cache, const ExpertEntry& to,
                 const ExpertEntry& from) {
    const auto writable = [](const std::byte* p) { return const_cast<std::byte*>(p); };
    const Copy parts[] = {{writable(to.gate), from.gate, cache.gate_bytes},
                          {writable(to.up), from.up, cache.up_bytes},
                          {writable(to.down), from.down, cache.down_bytes}};
    pool.run([&](unsigned) {
        while (copy_slice(parts, pool.next())) {
        }
    });
}

// The usable slot to fill: an empty one, else that of the coldest expert that no route of this
// call names (last_use tells), the lowest slot among equals. -1: none.
int32_t coldest_slot(const ExpertCacheView& cache, uint32_t tick) {
    int32_t best = -1;
    for (uint32_t slot = 0; slot < cache.slots; ++slot) {
        if (!cache.usable[slot]) continue;
        const int32_t expert = cache.expert_in[slot];
        if (expert < 0) return static_cast<int32_t>(slot);
        if (cache.last_use[expert] == tick) continue;
        if (best < 0 || cache.heat[expert] < cache.heat[cache.expert_in[best]])
            best = static_cast<int32_t>(slot);
    }
    return best;
}

}  // namespace

// Bytes: each routed expert once.
void HostKernels::gather_routed(const ExpertCacheView& cache, std::span<const int32_t> list,
                                const Routes& routes, const ExpertEntry* to) {
    for (const int32_t expert : list)
        if (routes.count[expert] > 0) copy_expert(pool_, cache, to[expert], cache.home[expert]);
}

void HostKernels::note_routes(const ExpertCacheView& cache, const Routes& routes, uint32_t used,
                              uint32_t first_row, uint32_t tick) {
    if (first_row >= routes.rows) return;
    const float decay = std::pow(kHeatDecay, static_cast<float>(routes.rows - first_row));
    for (uint32_t e = 0; e < cache.experts; ++e) cache.heat[e] *= decay;
    for (uint32_t r = first_row * used; r < routes.rows * used; ++r) {
        cache.heat[routes.expert[r]] += 1;
        cache.last_use[routes.expert[r]] = tick;
    }
}

// Bytes: each missed expert once, unless it is read in place.
void HostKernels::fetch_experts(const ExpertCacheView& cache, const Routes& routes, uint32_t used,
                                const DecodePlace* place) {
    const uint32_t tick = place->tick;
    const uint32_t total = routes.rows * used;
    for (uint32_t e = 0; e < cache.experts; ++e) cache.heat[e] *= kHeatDecay;
    for (uint32_t r = 0; r < total; ++r) {
        cache.heat[routes.expert[r]] += 1;
        cache.last_use[routes.expert[r]] = tick;
    }
    const auto usable = static_cast<uint32_t>(
        std::count_if(cache.usable, cache.usable + cache.slots, [](uint8_t u) { return u != 0; }));

    for (uint32_t e = 0; e < cache.experts; ++e) {
        if (routes.count[e] == 0) continue;
        const int32_t held = cache.slot_of[e];
        if (held >= 0) {
            ++*cache.hits;
            continue;
        }
        ++*cache.misses;
        cache.entries[e] = cache.home[e];  // until it has a slot
        if (usable < total) continue;
        const int32_t slot = coldest_slot(cache, tick);
        if (slot < 0) continue;
        const int32_t evicted = cache.expert_in[slot];
        if (evicted >= 0) {
            cache.slot_of[evicted] = -1;
            cache.entries[evicted] = cache.home[evicted];
        }
        std::byte* base = cache.slot_base[slot];
        const ExpertEntry entry{base, base + cache.up_offset, base + cache.down_offset};
        copy_expert(pool_, cache, entry, cache.home[e]);
        cache.entries[e] = entry;
        cache.slot_of[e] = slot;
        cache.expert_in[slot] = static_cast<int32_t>(e);
        *cache.bytes_copied += cache.gate_bytes + cache.up_bytes + cache.down_bytes;
    }
}

}  // namespace granary::gpu::host

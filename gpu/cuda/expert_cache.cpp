// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>
#include <cmath>

#include "gpu/cuda/gather.h"
#include "gpu/cuda/kernels.h"
#include "gpu/cuda/router.h"

namespace granary::gpu::cuda {
namespace {

constexpr float kHeatDecay = 1.0f - 1.0f / 256;  // as in expert_fetch.cuh

}  // namespace

Result<void> CudaKernels::load_expert_cache() {
    if (auto r = find("gather", {{"gather_pieces", &cache_.gather_pieces},
                                 {"gather_routed", &cache_.gather_routed},
                                 {"wait_for_staged", &cache_.wait_for_staged}});
        !r)
        return r;
    return find("expert_cache", {{"expert_note", &cache_.note},
                                 {"expert_note_picks", &cache_.note_picks},
                                 {"expert_fetch", &cache_.fetch}});
}

size_t CudaKernels::decode_fetch_bytes() const {
    return size_t{kDecodeRows} * kMostUsed * 3 * sizeof(GatherPiece);
}

void CudaKernels::gather_routed(const ExpertCacheView& cache, std::span<const int32_t> list,
                                const Routes& routes, const ExpertEntry* to) {
    GatherList part{{cache.gate_bytes, cache.up_bytes, cache.down_bytes}, {}};
    for (size_t first = 0; first < list.size(); first += GatherList::kMost) {
        const size_t count = std::min<size_t>(list.size() - first, GatherList::kMost);
        for (size_t i = 0; i < count; ++i) part.expert[i] = static_cast<uint16_t>(list[first + i]);
        queue(cache_.gather_routed, {kGatherBlocks, 3, static_cast<unsigned>(count)}, {256}, 0,
              part, static_cast<const int32_t*>(routes.count), cache.home, to);
    }
}

void CudaKernels::note_routes(const ExpertCacheView& cache, const Routes& routes, uint32_t used,
                              uint32_t first_row, uint32_t tick) {
    if (first_row >= routes.rows) return;
    const uint32_t rows = routes.rows - first_row;
    const float decay = std::pow(kHeatDecay, static_cast<float>(rows));
    queue(cache_.note, {(cache.experts + 7) / 8}, {256}, 0, cache,
          static_cast<const int32_t*>(routes.expert + size_t{first_row} * used), rows * used, decay,
          tick);
}

FetchExperts CudaKernels::fetch_job(const ExpertCacheView& cache, uint32_t rows, uint32_t used,
                                    const DecodePlace* place, const CpuShare& share) const {
    const uint32_t most =
        cache.complete ? 0 : std::min(rows * used, std::min(cache.experts, cache.slots));
    std::byte* const pieces =
        scratch_.require(decode_route_bytes() + size_t{most} * 3 * sizeof(GatherPiece)) +
        decode_route_bytes();
    return {cache, place, reinterpret_cast<GatherPiece*>(pieces), most,
            rows == 1 && !cache.complete ? share : CpuShare{}};
}

void CudaKernels::gather(const FetchExperts& job) {
    if (job.share.stage) queue_early(cache_.wait_for_staged, {1}, {32}, 0, job.share);
    if (job.most > 0)
        queue_early(cache_.gather_pieces, {kGatherBlocks, 3 * job.most}, {256}, 0,
                    static_cast<const GatherPiece*>(job.pieces));
}

// Counts all layers' picks at once, where nothing waits for it, and not layer by layer, where the
// experts do.
void CudaKernels::note_picks(const ExpertCacheView& first, size_t stride, uint32_t layers,
                             uint32_t routes, const DecodePlace* place) {
    queue_early(cache_.note_picks, {layers}, {128}, 0, NotePicks{first, stride, routes, place});
}

void CudaKernels::fetch_experts(const ExpertCacheView& cache, const Routes& routes, uint32_t used,
                                const DecodePlace* place) {
    ExpertCacheView all = cache;
    all.complete = false;  // this counts picks by itself
    const FetchExperts job = fetch_job(all, routes.rows, used, place);
    const uint32_t threads =
        std::clamp((std::max(cache.experts, cache.slots) + 31) / 32 * 32, 128u, 1024u);
    queue_early(cache_.fetch, {1}, {threads}, static_cast<unsigned>(cache.slots * sizeof(uint64_t)),
                job, static_cast<const int32_t*>(routes.expert), routes.rows * used);
    gather(job);
}

}  // namespace granary::gpu::cuda

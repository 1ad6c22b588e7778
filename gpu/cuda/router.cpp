// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/cuda/router.h"

#include <cstdio>
#include <cstdlib>

#include "gpu/cuda/kernels.h"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t chunks_of(uint32_t rows) {
    return (rows + kChunkRows - 1) / kChunkRows;
}

// But for where logits and counts go.
RouteRows route_rows(const RouterShape& shape, const Weight& router, const float* x,
                     const Routes& routes, uint32_t* finished) {
    if (shape.experts > kMostExperts || shape.used > kMostUsed) {
        std::fprintf(stderr, "%u of %u experts, %u of %u are the most\n", shape.used, shape.experts,
                     kMostUsed, kMostExperts);
        std::abort();
    }
    return {{nullptr, shape.experts, shape.used, shape.normalise, shape.scale, routes},
            x,
            router.data,
            static_cast<uint32_t>(router.type),
            router.cols,
            row_bytes(router.type, router.cols),
            nullptr,
            finished};
}

}  // namespace

Result<void> CudaKernels::load_router() {
    if (auto r = find("router_decode", {{"route_decode_f32", &router_.decode_f32},
                                        {"route_decode_any", &router_.decode_any}});
        !r)
        return r;
    return find("router", {{"route_logits_f32", &router_.logits_f32},
                           {"route_logits_any", &router_.logits_any},
                           {"route_choose", &router_.choose},
                           {"route_count", &router_.count},
                           {"route_sort", &router_.sort}});
}

size_t CudaKernels::decode_route_bytes() const {
    return size_t{kFewRows} * kMostExperts * sizeof(float);
}

// Logits, and counts of chunks.
CudaKernels::PromptBytes CudaKernels::prompt_route_bytes(uint32_t experts) const {
    const size_t row = experts * sizeof(float);
    return {row, row + (row + kChunkRows - 1) / kChunkRows};
}

void CudaKernels::route(const RouterShape& shape, const Weight& router, const float* x,
                        const Routes& routes) {
    if (routes.decode) return route_decode(decode_rows(shape, router, x, routes), {}, {});
    RouteRows args = route_rows(shape, router, x, routes, counters_);
    const uint32_t chunks = chunks_of(routes.rows);
    const size_t logits_bytes = size_t{routes.rows} * shape.experts * sizeof(float);
    const size_t counts_bytes = size_t{chunks} * shape.experts * sizeof(int32_t);
    std::byte* const scratch = prompt_scratch_.require(logits_bytes + counts_bytes);
    args.logits = reinterpret_cast<float*>(scratch);
    args.counts = reinterpret_cast<int32_t*>(scratch + logits_bytes);
    queue(router.type == WeightType::f32 ? router_.logits_f32 : router_.logits_any,
          {(routes.rows + 63) / 64, (shape.experts + 127) / 128}, {256}, 0, args);
    queue(router_.choose, {chunks}, {256}, 0, args);
    queue(router_.count, {(shape.experts + 7) / 8}, {256}, 0, args, chunks);
    queue(router_.sort, {chunks}, {256}, 0, args);
}

void CudaKernels::route_and_fetch(const RouterShape& shape, const Weight& router, const float* x,
                                  const Routes& routes, const ExpertCacheView& cache,
                                  const DecodePlace* place, const CpuShare& share) {
    if (cache.slots == 0) return route(shape, router, x, routes);
    const FetchExperts job = fetch_job(cache, routes.rows, shape.used, place, share);
    route_decode(decode_rows(shape, router, x, routes), job, {});
    gather(job);
}

void CudaKernels::norm_route_and_fetch(const float* x, const float* weight, float eps,
                                       const Activations& norm, const RouterShape& shape,
                                       const Weight& router, const Routes& routes,
                                       const ExpertCacheView& cache, const DecodePlace* place,
                                       const CpuShare& share) {
    FetchExperts job{};
    if (cache.slots > 0) job = fetch_job(cache, routes.rows, shape.used, place, share);
    route_decode(decode_rows(shape, router, norm.values, routes), job,
                 {x, weight, eps, norm.codes});
    if (cache.slots > 0) gather(job);
}

RouteRows CudaKernels::decode_rows(const RouterShape& shape, const Weight& router, const float* x,
                                   const Routes& routes) const {
    RouteRows rows = route_rows(shape, router, x, routes, counters_);
    rows.logits = reinterpret_cast<float*>(scratch_.require(decode_route_bytes()));
    return rows;
}

void CudaKernels::route_decode(const RouteRows& rows, const FetchExperts& fetch,
                               const RouteNorm& norm) {
    const bool plain = static_cast<WeightType>(rows.type) == WeightType::f32 &&
                       rows.cols % 8 == 0 && aligned_16(rows.router, rows.x, norm.x, norm.weight);
    const uint32_t norms = norm.x ? rows.routes.rows * route_norm_blocks(rows.cols) : 0;
    queue_early(
        plain ? router_.decode_f32 : router_.decode_any,
        {norms + (rows.experts + kRouteExperts - 1) / kRouteExperts}, {128},
        fetch.cache.complete ? 0 : static_cast<unsigned>(fetch.cache.slots * sizeof(uint64_t)),
        rows, norm, fetch);
}

}  // namespace granary::gpu::cuda

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

}  // namespace

Result<void> CudaKernels::load_router() {
    return find("router", {{"route_few_f32", &router_.few_f32},
                           {"route_few_any", &router_.few_any},
                           {"route_logits_f32", &router_.logits_f32},
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
    if (shape.experts > kMostExperts || shape.used > kMostUsed) {
        std::fprintf(stderr, "%u of %u experts, %u of %u are the most\n", shape.used, shape.experts,
                     kMostUsed, kMostExperts);
        std::abort();
    }
    const bool f32 = router.type == WeightType::f32;
    RouteRows args{x,
                   router.data,
                   static_cast<uint32_t>(router.type),
                   shape.experts,
                   router.cols,
                   shape.used,
                   shape.normalise,
                   row_bytes(router.type, router.cols),
                   shape.scale,
                   nullptr,
                   nullptr,
                   counters_,
                   routes};
    const size_t logits_bytes = size_t{routes.rows} * shape.experts * sizeof(float);
    if (routes.rows <= kFewRows) {
        args.logits = reinterpret_cast<float*>(scratch_.require(logits_bytes));
        queue(f32 ? router_.few_f32 : router_.few_any, {(shape.experts + 3) / 4}, {128}, 0, args);
        return;
    }
    const uint32_t chunks = chunks_of(routes.rows);
    const size_t counts_bytes = size_t{chunks} * shape.experts * sizeof(int32_t);
    std::byte* const scratch = prompt_scratch_.require(logits_bytes + counts_bytes);
    args.logits = reinterpret_cast<float*>(scratch);
    args.counts = reinterpret_cast<int32_t*>(scratch + logits_bytes);
    queue(f32 ? router_.logits_f32 : router_.logits_any,
          {(routes.rows + 63) / 64, (shape.experts + 63) / 64}, {256}, 0, args);
    queue(router_.choose, {chunks}, {256}, 0, args);
    queue(router_.count, {(shape.experts + 7) / 8}, {256}, 0, args, chunks);
    queue(router_.sort, {chunks}, {256}, 0, args);
}

}  // namespace granary::gpu::cuda

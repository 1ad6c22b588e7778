// SPDX-License-Identifier: GPL-3.0-or-later
// Arguments of the kernels that route rows to experts, as host and device see them.
//
//   route_decode  rows of a decode step, with their norms, in one launch
//   route_logits  rows of a prompt: logits = router x
//   route_choose  softmax, the best experts of each row, and how often each chunk of rows picks
//                 each
//   route_count   these counts summed up: where in `order` each chunk's routes to an expert begin
//   route_sort    order
//
// A prompt's logit: by tensor cores the sums of kRouterSlice columns, factors having 22 bits; the
// sum of these in order. Tensor cores cut off below 2^-24 of a sum at each 16 columns (7.5: at each
// 8, so that slices are half as long there): slices keep that to 1e-6 of |x| |w|, as sums in f32 of
// another order differ.
#pragma once

#include <cstdint>

#include "gpu/cuda/gather.h"
#include "gpu/cuda/ordered_rows.h"
#include "gpu/kernels.h"

namespace granary::gpu::cuda {

inline constexpr uint32_t kFewRows = 8;  // of a decode step, at most
inline constexpr uint32_t kChunkRows = 16;
inline constexpr uint32_t kMostExperts = 4096;
inline constexpr uint32_t kMostUsed = 64;

// From logits to routes.
struct RouteChoice {
    float* logits;  // [rows, experts]
    uint32_t experts, used, normalise;
    float scale;
    Routes routes;
};
struct RouteRows : RouteChoice {
    const float* x;           // [rows, cols]
    const std::byte* router;  // [experts, cols]
    uint32_t type, cols;
    size_t row_bytes;    // of the router
    int32_t* counts;     // many rows: [experts, chunks]
    uint32_t* finished;  // 0 before and after; null: who reads the logits chooses
};
// Routes that the kernels of experts choose.
struct LateRoutes {
    RouteChoice choice;
    int32_t* picks;  // [used]
};

// What a decode step's rows of x are the norms of, with their codes; x null: they are there.
struct RouteNorm {
    const float* x;       // [rows, cols]
    const float* weight;  // [cols]
    float eps;
    std::byte* codes;  // [rows] of ordered_row_bytes
};

// Blocks of route_decode for a row's norm, and experts of each of the others.
GRANARY_HOST_DEVICE constexpr uint32_t route_norm_blocks(uint32_t cols) {
    return (cols + 511) / 512;
}
inline constexpr uint32_t kRouteExperts = 4;

// What fetches the experts of a decode step.
struct FetchExperts {
    ExpertCacheView cache;     // no slots: nothing to do
    const DecodePlace* place;  // its tick
    GatherPiece* pieces;       // [3 * most] what is to be copied
    uint32_t most;             // misses that can be copied
    CpuShare share;            // of a step of one row
};

// The picks of a step in complete caches, of the first and of those whose tables lie behind its.
struct NotePicks {
    ExpertCacheView first;
    size_t stride;  // bytes
    uint32_t routes;
    const DecodePlace* place;
};

}  // namespace granary::gpu::cuda

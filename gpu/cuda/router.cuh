// SPDX-License-Identifier: GPL-3.0-or-later
// What prompts and decode steps share on the way from logits to sorted routes.
#pragma once

#include "gpu/cuda/route_choice.cuh"
#include "gpu/cuda/router.h"
#include "gpu/cuda/rows.cuh"
#include "gpu/cuda/unpack.cuh"

namespace granary::gpu::cuda {
namespace {

// Columns 8 octet .. of a row of the router, which is f32 or of any type.
template <bool kF32>
__device__ __forceinline__ void router_octet(const RouteRows& args, uint32_t expert, uint32_t octet,
                                             float (&v)[8]) {
    const std::byte* const row = args.router + expert * args.row_bytes;
    if (kF32)
        load_octet(reinterpret_cast<const float*>(row), octet, args.cols, v);
    else
        decode_octet(static_cast<WeightType>(args.type), row, octet, args.cols, v);
}

// How many of the routes go to `expert`. The list begins at a multiple of 16 bytes. Code that runs
// once costs what it costs to be brought: it is small.
__device__ __forceinline__ int32_t count_of(const int32_t* expert_of, uint32_t routes,
                                            int32_t expert) {
    int32_t count = 0;
    const auto* const four = reinterpret_cast<const int4*>(expert_of);
#pragma unroll 1
    for (uint32_t i = 0; i < routes / 4; ++i) {
        const int4 e = four[i];
        count += (e.x == expert) + (e.y == expert) + (e.z == expert) + (e.w == expert);
    }
#pragma unroll 1
    for (uint32_t r = routes / 4 * 4; r < routes; ++r) count += expert_of[r] == expert;
    return count;
}

// Whether this block is the last of the grid to come here; what the others wrote is visible then,
// past the L1 cache.
__device__ bool last_block(uint32_t* finished) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        last = count_in(finished) + 1 == gridDim.x;
        if (last) *finished = 0;
    }
    __syncthreads();
    return last;
}

}  // namespace
}  // namespace granary::gpu::cuda

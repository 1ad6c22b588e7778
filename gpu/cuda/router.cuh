// SPDX-License-Identifier: GPL-3.0-or-later
// What prompts and decode steps share on the way from logits to sorted routes.
#pragma once

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

// ---- a row's experts, by one warp

__device__ __forceinline__ float largest_of_warp(float value) {
    // Of negative floats larger bits are smaller values.
    const uint32_t bits = __float_as_uint(value);
    const uint32_t ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
    const uint32_t most = warp_max(ordered);
    return __uint_as_float(most >> 31 ? most & 0x7fffffffu : ~most);
}

// Values of experts lane, lane + 32, ...: kEach of them in registers, or any number in memory,
// where the logits were.
template <uint32_t kEach>
struct InRegisters {
    float values[kEach];
    __device__ __forceinline__ constexpr uint32_t count() const { return kEach; }
    __device__ __forceinline__ float& operator[](uint32_t j) { return values[j]; }
};
struct InMemory {
    float* first;
    uint32_t experts;
    __device__ __forceinline__ uint32_t count() const { return experts; }
    __device__ __forceinline__ float& operator[](uint32_t j) { return first[32 * j]; }
};

// A NaN anywhere makes every expert equally likely, so that a broken file still routes somewhere.
template <class Values>
__device__ __forceinline__ void choose(const RouteRows& args, uint32_t row, uint32_t lane,
                                       int32_t* expert_of, Values p) {
    const float* const logits = args.logits + size_t{row} * args.experts;
    float largest = -INFINITY;
#pragma unroll
    for (uint32_t j = 0; j < p.count(); ++j) {
        const uint32_t e = lane + 32 * j;
        p[j] = e < args.experts ? __ldcg(logits + e) : -INFINITY;
        largest = fmaxf(largest, p[j]);
    }
    largest = largest_of_warp(largest);
    float sum = 0;
#pragma unroll
    for (uint32_t j = 0; j < p.count(); ++j) {
        p[j] = lane + 32 * j < args.experts ? expf(p[j] - largest) : 0.0f;
        sum += p[j];
    }
    sum = warp_sum(sum);
    const bool good = sum >= 1 && sum < INFINITY;
#pragma unroll
    for (uint32_t j = 0; j < p.count(); ++j) {
        if (!good) p[j] = 1;
        if (lane + 32 * j >= args.experts) p[j] = -1;
    }
    // What makes a probability of such a value.
    const float share = 1.0f / (good ? sum : static_cast<float>(args.experts));

    const size_t route = size_t{row} * args.used;
    float chosen = 0, weights[(kMostUsed + 31) / 32] = {};
    for (uint32_t rank = 0; rank < args.used; ++rank) {
        // Bits of values that are not negative are in the order of the values; -1 is below all.
        int mine = -1;
        uint32_t place = ~0u;
#pragma unroll
        for (uint32_t j = 0; j < p.count(); ++j)
            if (const int bits = __float_as_int(p[j]); bits > mine) {
                mine = bits;
                place = lane + 32 * j;
            }
        const uint32_t most = warp_max(static_cast<uint32_t>(mine + 1));
        const uint32_t e = warp_min(static_cast<uint32_t>(mine + 1) == most ? place : ~0u);
        const float weight = __uint_as_float(most - 1);
#pragma unroll
        for (uint32_t j = 0; j < p.count(); ++j)
            if (lane + 32 * j == e) p[j] = -1;
        chosen += weight;
#pragma unroll
        for (uint32_t i = 0; i < (kMostUsed + 31) / 32; ++i)
            if (rank == 32 * i + lane) weights[i] = weight;
        if (lane == 0) {
            args.routes.expert[route + rank] = static_cast<int32_t>(e);
            expert_of[rank] = static_cast<int32_t>(e);
        }
    }
    const float factor =
        (args.normalise ? share / fmaxf(chosen * share, 6.1e-5f) : share) * args.scale;
#pragma unroll
    for (uint32_t i = 0; i < (kMostUsed + 31) / 32; ++i)
        if (32 * i + lane < args.used)
            args.routes.weight[route + 32 * i + lane] = weights[i] * factor;
}

__device__ __forceinline__ void choose(const RouteRows& args, uint32_t row, uint32_t lane,
                                       int32_t* expert_of) {
    if (args.experts <= 128)
        choose(args, row, lane, expert_of, InRegisters<4>{});
    else if (args.experts <= 256)
        choose(args, row, lane, expert_of, InRegisters<8>{});
    else if (args.experts <= 512)
        choose(args, row, lane, expert_of, InRegisters<16>{});
    else
        choose(args, row, lane, expert_of,
               InMemory{args.logits + size_t{row} * args.experts + lane,
                        (args.experts - lane + 31) / 32});
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

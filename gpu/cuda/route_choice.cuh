// SPDX-License-Identifier: GPL-3.0-or-later
// From the logits of a row to its experts, by one warp.
#pragma once

#include "gpu/cuda/portable.h"
#include "gpu/cuda/router.h"
#include "gpu/cuda/rows.cuh"

namespace granary::gpu::cuda {
namespace {

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

// The experts of a row from the best on: each(rank, expert, weight), of `ranks` of them. Times what
// comes back a weight is a probability. A NaN anywhere makes every expert equally likely, so that a
// broken file still routes somewhere.
template <class Values, class Each>
__device__ __forceinline__ float choose(const RouteChoice& args, uint32_t row, uint32_t lane,
                                        uint32_t ranks, Values p, const Each& each) {
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
    for (uint32_t rank = 0; rank < ranks; ++rank) {
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
#pragma unroll
        for (uint32_t j = 0; j < p.count(); ++j)
            if (lane + 32 * j == e) p[j] = -1;
        each(rank, e, __uint_as_float(most - 1));
    }
    return 1.0f / (good ? sum : static_cast<float>(args.experts));
}

// All of a row's routes: experts and weights [used] in rank order.
template <class Values>
__device__ __forceinline__ void choose_all(const RouteChoice& args, uint32_t row, uint32_t lane,
                                           int32_t* expert_of, float* weight_of, Values p) {
    float chosen = 0, weights[(kMostUsed + 31) / 32] = {};
    const auto take = [&](uint32_t rank, uint32_t e, float weight) {
        chosen += weight;
#pragma unroll
        for (uint32_t i = 0; i < (kMostUsed + 31) / 32; ++i)
            if (rank == 32 * i + lane) weights[i] = weight;
        if (lane == 0) expert_of[rank] = static_cast<int32_t>(e);
    };
    const float share = choose(args, row, lane, args.used, p, take);
    const float factor =
        (args.normalise ? share / fmaxf(chosen * share, 6.1e-5f) : share) * args.scale;
#pragma unroll
    for (uint32_t i = 0; i < (kMostUsed + 31) / 32; ++i)
        if (32 * i + lane < args.used) weight_of[32 * i + lane] = weights[i] * factor;
}
// kMost: experts that there may be.
template <uint32_t kMost>
__device__ __forceinline__ void choose_all(const RouteChoice& args, uint32_t row, uint32_t lane,
                                           int32_t* expert_of, float* weight_of) {
    if (args.experts <= 128)
        choose_all(args, row, lane, expert_of, weight_of, InRegisters<4>{});
    else if (args.experts <= 256)
        choose_all(args, row, lane, expert_of, weight_of, InRegisters<8>{});
    else if (kMost <= 512 || args.experts <= 512)
        choose_all(args, row, lane, expert_of, weight_of, InRegisters<16>{});
    else
        choose_all(args, row, lane, expert_of, weight_of,
                   InMemory{args.logits + size_t{row} * args.experts + lane,
                            (args.experts - lane + 31) / 32});
}
// The same, and its part of the routes.
__device__ __forceinline__ void choose_routes(const RouteChoice& args, uint32_t row, uint32_t lane,
                                              int32_t* expert_of) {
    const size_t route = size_t{row} * args.used;
    choose_all<kMostExperts>(args, row, lane, expert_of, args.routes.weight + route);
    __syncwarp();
    for (uint32_t i = lane; i < args.used; i += 32) args.routes.expert[route + i] = expert_of[i];
}

// The expert of one rank of row 0, of at most 512.
__device__ __forceinline__ uint32_t choose_one(const RouteChoice& args, uint32_t lane,
                                               uint32_t rank) {
    uint32_t chosen = 0;
    const auto take = [&](uint32_t, uint32_t e, float) { chosen = e; };
    if (args.experts <= 128)
        choose(args, 0, lane, rank + 1, InRegisters<4>{}, take);
    else if (args.experts <= 256)
        choose(args, 0, lane, rank + 1, InRegisters<8>{}, take);
    else
        choose(args, 0, lane, rank + 1, InRegisters<16>{}, take);
    return chosen;
}

}  // namespace
}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// What a delta net takes in, value by value; the same bits wherever it is done.
#pragma once

#include "gpu/cuda/rows.cuh"

namespace granary::gpu::cuda {
namespace {

// The logarithm of a head's decay. Above 20 softplus is x to f32.
__device__ __forceinline__ float decay_of(float alpha, float dt, float a) {
    const float x = alpha + dt;
    return a * (x > 20 ? x : log1pf(expf(x)));
}

__device__ __forceinline__ float rate_of(float beta) {
    return 1 / (1 + expf(-beta));
}

// A channel convolved: values in the order of rows, the newest last, and their weights. `first`: so
// many in front are left out.
template <uint32_t kTaps>
__device__ __forceinline__ float convolved(const float (&weight)[kTaps],
                                           const float (&value)[kTaps], uint32_t first = 0) {
    float sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < kTaps; ++i)
        if (i >= first) sum = fmaf(weight[i], value[i], sum);
    return times_sigmoid(sum, sum);
}

}  // namespace
}  // namespace granary::gpu::cuda

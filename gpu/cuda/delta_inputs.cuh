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

// A channel convolved: weights and values number t from the end, of kTaps the first `taps`.
template <uint32_t kTaps>
__device__ __forceinline__ float convolved(const float (&weight)[kTaps],
                                           const float (&value)[kTaps], uint32_t taps) {
    float sum = 0;
#pragma unroll
    for (uint32_t t = kTaps; t-- > 0;)
        if (t < taps) sum = fmaf(weight[t], value[t], sum);
    return times_sigmoid(sum, sum);
}

}  // namespace
}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// The gated delta net of generated tokens in f32, one by one.
#include "gpu/cuda/delta_net.cuh"
#include "gpu/cuda/early.cuh"
#include "gpu/cuda/norm_decode.cuh"

namespace granary::gpu::cuda {

// Bytes: the state, read and written once a call. A warp has every eighth row of the state's
// columns, a lane one column. Grid: as delta_net_chunk.
extern "C" __global__ void __launch_bounds__(kDeltaThreads) delta_net_decode(const DeltaNet job) {
    constexpr uint32_t kWarps = kDeltaThreads / 32, kRows = 256 / kWarps;
    __shared__ float q[256], k[256], part[kWarps][32], size[2];
    let_next_begin();
    const uint32_t head = blockIdx.y, dim = job.dim, warp = threadIdx.x / 32;
    const uint32_t lane = threadIdx.x % 32, column = blockIdx.x * kDeltaColumns + lane;
    const Head at = head_of(job, head);
    float* const kept = job.state + size_t{head} * dim * dim + column;
    // Towards the second cache, where what an earlier call writes is seen.
    for (uint32_t row = warp; row < dim && column < dim; row += kWarps)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(kept + size_t{row} * dim));
    wait_for_kernels_ahead();
    float state[kRows];
#pragma unroll
    for (uint32_t r = 0; r < kRows; ++r) {
        const uint32_t row = r * kWarps + warp;
        state[r] = row < dim && column < dim ? kept[size_t{row} * dim] : 0;
    }
    const auto over_warps = [&](float value) {
        part[warp][lane] = value;
        __syncthreads();
        float sum = 0;
        for (uint32_t i = 0; i < kWarps; ++i) sum += part[i][lane];
        __syncthreads();
        return sum;
    };
    for (uint32_t token = 0; token < job.n; ++token) {
        const float* const x = job.x + token * at.channels;
        const size_t gate = size_t{token} * job.value_heads + head;
        if (warp < 2) {
            float sum = 0;
            for (uint32_t i = lane; i < dim; i += 32) {
                const float value = x[(warp == 0 ? at.q : at.k) + i];
                (warp == 0 ? q : k)[i] = value;
                sum += value * value;
            }
            sum = sqrtf(warp_sum(sum) + job.norm_eps);
            if (lane == 0) size[warp] = warp == 0 ? 1 / (sum * sqrtf(float(dim))) : 1 / sum;
        }
        __syncthreads();
        const float decay = expf(job.alpha[gate]), of_q = size[0], of_k = size[1];
        float recalled = 0;
#pragma unroll
        for (uint32_t r = 0; r < kRows; ++r) {
            const uint32_t row = r * kWarps + warp;
            state[r] *= decay;
            if (row < dim) recalled += state[r] * (k[row] * of_k);
        }
        recalled = over_warps(recalled);
        const float value = column < dim ? x[at.v + column] : 0;
        const float delta = job.beta[gate] * (value - recalled);
        float read = 0;
#pragma unroll
        for (uint32_t r = 0; r < kRows; ++r) {
            const uint32_t row = r * kWarps + warp;
            if (row >= dim) continue;
            state[r] += k[row] * of_k * delta;
            read += state[r] * (q[row] * of_q);
        }
        read = over_warps(read);
        if (warp == 0 && column < dim) job.out[gate * dim + column] = read;
    }
#pragma unroll
    for (uint32_t r = 0; r < kRows; ++r) {
        const uint32_t row = r * kWarps + warp;
        if (row < dim && column < dim) kept[size_t{row} * dim] = state[r];
    }
}

// ---- heads of 128, with the norm that follows

namespace {

constexpr uint32_t kDim = 128, kWarps = kDeltaHeadThreads / 32, kRows = kDim / kWarps;

// The warps' parts of a vector of kDim values, added up in order; every thread gets those of its
// lane's four columns. `total` may be written again once all have come to the next barrier.
struct Parts {
    float4 part[kWarps][34];  // as many as keeps the sums' reads in different banks
    alignas(16) float total[kDim];

    __device__ __forceinline__ float4 sum(const float4& mine) {
        part[threadIdx.x / 32][threadIdx.x % 32] = mine;
        __syncthreads();
        const uint32_t column = threadIdx.x / 4, piece = threadIdx.x % 4;
        float all = 0;
#pragma unroll
        for (uint32_t i = 0; i < kWarps; i += 4)
            all += reinterpret_cast<const float*>(part[i + piece])[column];
        all += __shfl_xor_sync(~0u, all, 1);
        all += __shfl_xor_sync(~0u, all, 2);
        if (piece == 0) total[column] = all;
        __syncthreads();
        return reinterpret_cast<const float4*>(total)[threadIdx.x % 32];
    }
};
__device__ __forceinline__ void add_product(float4& sum, const float4& x, float by) {
    sum.x = fmaf(x.x, by, sum.x);
    sum.y = fmaf(x.y, by, sum.y);
    sum.z = fmaf(x.z, by, sum.z);
    sum.w = fmaf(x.w, by, sum.w);
}

}  // namespace

// A block is a head, a warp has every sixteenth row of its state, a lane four columns. Bytes: the
// state, read and written once a call. Grid: value_heads.
extern "C" __global__ void __launch_bounds__(kDeltaHeadThreads)
    delta_net_decode_norm(const __grid_constant__ DeltaNet job,
                          const __grid_constant__ DeltaNorm norm) {
    __shared__ Parts parts;
    __shared__ __align__(16) float q[kDim], k[kDim];
    let_next_begin();
    const uint32_t head = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const Head at = head_of(job, head);
    float* const state_of_head = job.state + size_t{head} * kDim * kDim;
    // Towards the second cache, where what an earlier call writes is seen.
    for (uint32_t line = threadIdx.x; line < kDim * kDim / 32; line += kDeltaHeadThreads)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(state_of_head + line * 32));
    float w[4];
    load_weights<true>(norm.weight, lane, kDim, w);
    wait_for_kernels_ahead();
    auto* const kept = reinterpret_cast<float4*>(state_of_head) + warp * 32 + lane;
    float4 state[kRows];
#pragma unroll
    for (uint32_t r = 0; r < kRows; ++r) state[r] = kept[r * kWarps * 32];
#pragma unroll 1
    for (uint32_t token = 0; token < job.n; ++token) {
        const float* const x = job.x + token * at.channels;
        const size_t number = size_t{token} * job.value_heads + head;
        const float4 value = reinterpret_cast<const float4*>(x + at.v)[lane];
        const float4 gate = reinterpret_cast<const float4*>(norm.gate + number * kDim)[lane];
        const float decay = expf(job.alpha[number]), rate = job.beta[number];
        if (warp < 2) {
            const float4 all = reinterpret_cast<const float4*>(x + (warp == 0 ? at.q : at.k))[lane];
            const float squares = all.x * all.x + all.y * all.y + all.z * all.z + all.w * all.w;
            const float size = sqrtf(warp_sum(squares) + job.norm_eps);
            const float by = 1 / (warp == 0 ? size * sqrtf(float(kDim)) : size);
            reinterpret_cast<float4*>(warp == 0 ? q : k)[lane] =
                make_float4(all.x * by, all.y * by, all.z * by, all.w * by);
        }
        __syncthreads();
        float4 recalled = make_float4(0, 0, 0, 0);
#pragma unroll
        for (uint32_t r = 0; r < kRows; ++r) {
            float4& s = state[r];
            s = make_float4(s.x * decay, s.y * decay, s.z * decay, s.w * decay);
            add_product(recalled, s, k[r * kWarps + warp]);
        }
        recalled = parts.sum(recalled);
        const float4 delta =
            make_float4(rate * (value.x - recalled.x), rate * (value.y - recalled.y),
                        rate * (value.z - recalled.z), rate * (value.w - recalled.w));
        float4 read = make_float4(0, 0, 0, 0);
#pragma unroll
        for (uint32_t r = 0; r < kRows; ++r) {
            add_product(state[r], delta, k[r * kWarps + warp]);
            add_product(read, state[r], q[r * kWarps + warp]);
        }
        read = parts.sum(read);
        if (warp > 0) continue;
        const float squares = read.x * read.x + read.y * read.y + read.z * read.z + read.w * read.w;
        const float factor = norm_factor(warp_sum(squares), kDim, norm.eps);
        const float of_read[4] = {read.x, read.y, read.z, read.w};
        const float g[4] = {gate.x, gate.y, gate.z, gate.w};
        float v[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i)
            v[i] = times_sigmoid(of_read[i] * factor * w[i] * g[i], g[i]);
        const size_t cols = size_t{job.value_heads} * kDim;
        if (norm.values) store_quad<true>(norm.values + number * kDim, lane, kDim, v);
        if (norm.codes)
            store_decode_codes(norm.codes + token * ordered_row_bytes(cols), head * 32 + lane, v);
    }
#pragma unroll
    for (uint32_t r = 0; r < kRows; ++r) kept[r * kWarps * 32] = state[r];
}

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Between the matrices of a decode step: x and what its experts put out, then the RMS norm of that.
#include "gpu/cuda/cpu_share.cuh"
#include "gpu/cuda/early.cuh"
#include "gpu/cuda/norm_decode.cuh"
#include "gpu/cuda/norm_decode.h"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kThreads = kNormThreads;

struct NormOut {
    const float* weight;  // may be null
    float eps;
    float* values;     // of the row; may be null
    std::byte* codes;  // of the row; may be null
};

constexpr uint32_t kAtOnce = 8;  // experts whose values are under way together

// v, a quad of x, += what experts put out, and what the processor has, which may be null. Without
// branches: what runs once is brought line by line from memory, and soonest in one run.
template <bool kWhole, class Output>
__device__ __forceinline__ void add_outputs(const float* route_weights, uint32_t used,
                                            uint32_t cols, const Output* out, uint32_t quad,
                                            const float* from_cpu, float (&v)[4]) {
#pragma unroll 1
    for (uint32_t from = 0; from < used; from += kAtOnce) {
        float more[kAtOnce][4], factor[kAtOnce];
#pragma unroll
        for (uint32_t i = 0; i < kAtOnce; ++i) {
            const uint32_t number = min(from + i, used - 1);
            load_quad<kWhole>(out + number * cols, quad, cols, more[i]);
            factor[i] = route_weights[number];
            if (from + i >= used) factor[i] = 0;
        }
#pragma unroll
        for (uint32_t i = 0; i < kAtOnce; ++i)
#pragma unroll
            for (uint32_t k = 0; k < 4; ++k)  // of weight 0: nothing was put out
                v[k] = factor[i] == 0 ? v[k] : fmaf(more[i][k], factor[i], v[k]);
    }
    if (from_cpu)
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i)
            if (kWhole || quad * 4 + i < cols) v[i] += __ldcv(from_cpu + quad * 4 + i);
}

// A row of them, and where what becomes of it goes.
template <class Output>
struct RowOutputs {
    const float* weights;  // [used]
    uint32_t used;         // 0: nothing is added
    const Output* out;     // [used, cols]
    const float* x;
    float* sum;  // another place than x where there is a norm
};

// kRowBlocks blocks a row: each puts all of it together for the norm's sum, which is less than
// waiting for the others, and leaves its own quads of sum, values and codes. Values and codes null:
// no norm. Bytes of a row of 2,048 with 8 experts: 57 KB a block, all from the L2 cache. Where the
// processor has a share, until it has answered.
template <bool kWhole, class Output>
__device__ __forceinline__ void combine_norm(const RowOutputs<Output>& from, uint32_t cols,
                                             const NormOut& to, const CpuShare& share) {
    __shared__ float sums[kThreads / 32];
    const bool norms = to.values || to.codes;
    const uint32_t each = row_block_quads(cols), first = blockIdx.x % kRowBlocks * each;
    const uint32_t quads = ordered_octets(cols) * 2, end = min(first + each, quads);
    float w[4], v[4] = {}, squares = 0;
    load_weights<kWhole>(to.weight, threadIdx.x, cols, w);
    wait_for_kernels_ahead();
    const float* const from_cpu = wait_for_cpu(share) ? share.sum : nullptr;
    const auto take = [&](uint32_t quad) {
        load_quad<kWhole>(from.x, quad, cols, v);
        add_outputs<kWhole>(from.weights, from.used, cols, from.out, quad, from_cpu, v);
    };
    for (uint32_t quad = threadIdx.x + (norms ? 0 : first);
         quad * 4 < cols && (norms || quad < end); quad += kThreads) {
        take(quad);
        if (from.sum && quad >= first && quad < end) store_quad<kWhole>(from.sum, quad, cols, v);
#pragma unroll
        for (const float value : v) squares = fmaf(value, value, squares);
    }
    if (!norms) return;
    const float factor = norm_factor(block_sum<kThreads>(squares, sums), cols, to.eps);
    if (quads <= kThreads) {  // they are still there
        if (threadIdx.x >= first && threadIdx.x < end)
            store_norm<kWhole>(v, w, factor, threadIdx.x, cols, to.values, to.codes);
        return;
    }
    for (uint32_t quad = first + threadIdx.x; quad < end; quad += kThreads) {
        if (quad * 4 < cols) {
            take(quad);
            load_weights<kWhole>(to.weight, quad, cols, w);
        }
        store_norm<kWhole>(v, w, factor, quad, cols, to.values, to.codes);
    }
}

template <class Output>
__device__ __forceinline__ void combine_norm(const CombineNorm& job, const CpuShare& share) {
    let_next_begin();
    const uint32_t cols = job.cols;
    const size_t row = blockIdx.x / kRowBlocks, route = row * job.used;
    const RowOutputs<Output> from{job.route_weights + route, job.used,
                                  static_cast<const Output*>(job.out) + route * cols,
                                  job.x + row * cols, job.sum ? job.sum + row * cols : nullptr};
    const NormOut to{job.weight, job.eps, job.values ? job.values + row * cols : nullptr,
                     job.codes ? job.codes + row * ordered_row_bytes(cols) : nullptr};
    if (whole_quads(cols, job.out, job.x, job.weight, job.values) && aligned_16(job.sum))
        combine_norm<true>(from, cols, to, share);
    else
        combine_norm<false>(from, cols, to, share);
}

}  // namespace

// Grid: kRowBlocks for each row.
extern "C" __global__ void __launch_bounds__(kThreads)
    combine_norm_f16(const __grid_constant__ CombineNorm job,
                     const __grid_constant__ CpuShare share) {
    combine_norm<__half>(job, share);
}
extern "C" __global__ void __launch_bounds__(kThreads)
    combine_norm_f32(const __grid_constant__ CombineNorm job,
                     const __grid_constant__ CpuShare share) {
    combine_norm<float>(job, share);
}

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Between the matrices of a decode step: x += what its experts put out, then its RMS norm.
#include "gpu/cuda/cpu_share.cuh"
#include "gpu/cuda/early.cuh"
#include "gpu/cuda/norm_decode.cuh"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kThreads = 512;

struct NormOut {
    const float* weight;  // may be null
    float eps;
    float* values;     // of the row; may be null
    std::byte* codes;  // of the row; may be null
};

// A block a row; `used` 0: nothing is added; values and codes null: no norm. Bytes of a row of
// 2,048 with 8 experts: 57 KB, all from the L2 cache. Time: that of its loads and of a sum over the
// block; where the processor has a share, until it has answered.
template <bool kWhole, class Output>
__device__ __forceinline__ void combine_norm(const float* route_weights, uint32_t used,
                                             uint32_t cols, const Output* out, float* row,
                                             const NormOut& to, const CpuShare& share) {
    __shared__ float sums[kThreads / 32];
    float w[4], v[4] = {}, sum = 0;
    load_weights<kWhole>(to.weight, threadIdx.x, cols, w);
    wait_for_kernels_ahead();
    const bool more_to_add = wait_for_cpu(share);
    for (uint32_t quad = threadIdx.x; quad * 4 < cols; quad += kThreads) {
        load_quad<kWhole>(row, quad, cols, v);
        // Eight experts' values are under way together.
        for (uint32_t first = 0; first < used; first += 8) {
            float more[8][4], factor[8];
#pragma unroll
            for (uint32_t i = 0; i < 8; ++i) {
                factor[i] = 0;
                if (first + i >= used) continue;
                load_quad<kWhole>(out + (first + i) * cols, quad, cols, more[i]);
                factor[i] = route_weights[first + i];
            }
#pragma unroll
            for (uint32_t i = 0; i < 8; ++i)
#pragma unroll
                for (uint32_t k = 0; k < 4; ++k)  // of weight 0: nothing was put out
                    v[k] = factor[i] == 0 ? v[k] : fmaf(more[i][k], factor[i], v[k]);
        }
        if (more_to_add)
            for (uint32_t i = 0; i < 4 && quad * 4 + i < cols; ++i)
                v[i] += __ldcv(share.sum + quad * 4 + i);
        if (used > 0) store_quad<kWhole>(row, quad, cols, v);
#pragma unroll
        for (const float value : v) sum = fmaf(value, value, sum);
    }
    if (!to.values && !to.codes) return;
    const float factor = norm_factor(block_sum<kThreads>(sum, sums), cols, to.eps);
    for (uint32_t quad = threadIdx.x; quad < ordered_octets(cols) * 2; quad += kThreads) {
        if (cols > 4 * kThreads && quad * 4 < cols) {  // else they are still there
            load_quad<kWhole>(row, quad, cols, v);
            load_weights<kWhole>(to.weight, quad, cols, w);
        }
        store_norm<kWhole>(v, w, factor, quad, cols, to.values, to.codes);
    }
}

template <class Output>
__device__ __forceinline__ void combine_norm(const float* route_weights, uint32_t used,
                                             uint32_t cols, const Output* out, float* x,
                                             const float* weight, float eps, float* values,
                                             std::byte* codes, const CpuShare& share) {
    let_next_begin();
    const size_t row = blockIdx.x, route = row * used;
    const NormOut to{weight, eps, values ? values + row * cols : nullptr,
                     codes ? codes + row * ordered_row_bytes(cols) : nullptr};
    if (whole_quads(cols, out, x, weight, values))
        combine_norm<true>(route_weights + route, used, cols, out + route * cols, x + row * cols,
                           to, share);
    else
        combine_norm<false>(route_weights + route, used, cols, out + route * cols, x + row * cols,
                            to, share);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    combine_norm_f16(const float* route_weights, uint32_t used, uint32_t cols, const __half* out,
                     float* x, const float* weight, float eps, float* values, std::byte* codes,
                     const __grid_constant__ CpuShare share) {
    combine_norm(route_weights, used, cols, out, x, weight, eps, values, codes, share);
}
extern "C" __global__ void __launch_bounds__(kThreads)
    combine_norm_f32(const float* route_weights, uint32_t used, uint32_t cols, const float* out,
                     float* x, const float* weight, float eps, float* values, std::byte* codes,
                     const __grid_constant__ CpuShare share) {
    combine_norm(route_weights, used, cols, out, x, weight, eps, values, codes, share);
}

}  // namespace granary::gpu::cuda

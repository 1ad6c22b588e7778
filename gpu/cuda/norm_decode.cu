// SPDX-License-Identifier: GPL-3.0-or-later
// Between the matrices of a decode step: x += what its experts put out, then its RMS norm.
#include "gpu/cuda/cpu_share.cuh"
#include "gpu/cuda/early.cuh"
#include "gpu/cuda/norm_decode.cuh"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kThreads = 512;

// A block a row; `used` 0: nothing is added; values and codes null: no norm. Bytes of a row of
// 2,048 with 8 experts: 57 KB, all from the L2 cache. Time: that of its loads and of a sum over the
// block; where the processor has a share, until it has answered.
template <class Output>
__device__ __forceinline__ void combine_norm(const float* route_weights, uint32_t used,
                                             uint32_t cols, const Output* out, float* x,
                                             const float* weight, float eps, float* values,
                                             std::byte* codes, const CpuShare& share) {
    let_next_begin();
    float w[4];
    load_first_weight(weight, cols, w);
    wait_for_kernels_ahead();
    float* const row = x + size_t{blockIdx.x} * cols;
    const size_t route = size_t{blockIdx.x} * used;
    const bool more_to_add = wait_for_cpu(share);
    const auto quads = [&](uint32_t quad, float(&v)[4]) {
        load_quad(row, quad, cols, v);
        // Eight experts' values are under way together.
        for (uint32_t first = 0; first < used; first += 8) {
            float more[8][4], factor[8];
#pragma unroll
            for (uint32_t i = 0; i < 8; ++i) {
                factor[i] = 0;
                if (first + i >= used) continue;
                load_quad(out + (route + first + i) * cols, quad, cols, more[i]);
                factor[i] = route_weights[route + first + i];
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
        if (used > 0) store_quad(row, quad, cols, v);
    };
    norm_row<kThreads>(quads, row, cols, weight, w, eps,
                       values ? values + size_t{blockIdx.x} * cols : nullptr,
                       codes ? codes + blockIdx.x * ordered_row_bytes(cols) : nullptr);
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

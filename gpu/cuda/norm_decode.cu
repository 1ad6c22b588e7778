// SPDX-License-Identifier: GPL-3.0-or-later
// Between the matrices of a decode step: x += what its experts put out, then its RMS norm.
#include "gpu/cuda/cpu_share.cuh"
#include "gpu/cuda/early.cuh"
#include "gpu/cuda/output_rows.cuh"
#include "gpu/cuda/rows.cuh"

namespace granary::gpu::cuda {
namespace {

// A block a row; `used` 0: nothing is added; values and codes null: no norm. Bytes of a row of
// 2,048 with 8 experts: 57 KB, all from the L2 cache. Time: that of its loads and of a sum over the
// block; where the processor has a share, until it has answered.
template <class Output>
__device__ __forceinline__ void combine_norm(const float* route_weights, uint32_t used,
                                             uint32_t cols, const Output* out, float* x,
                                             const float* weight, float eps, float* values,
                                             std::byte* codes, const CpuShare& share) {
    __shared__ float sums[8];
    let_next_begin();
    float w[8], v[8];
    if (weight) load_octet(weight, threadIdx.x, cols, w);
    wait_for_kernels_ahead();
    float* const row = x + size_t{blockIdx.x} * cols;
    const size_t route = size_t{blockIdx.x} * used;
    const bool more_to_add = wait_for_cpu(share);
    float sum = 0;
    for (uint32_t octet = threadIdx.x; octet * 8 < cols; octet += 256) {
        load_octet(row, octet, cols, v);
#pragma unroll 8
        for (uint32_t rank = 0; rank < used; ++rank) {
            float more[8];
            load_output(out + (route + rank) * cols, octet, cols, more);
            const float factor = route_weights[route + rank];
            if (factor == 0) continue;  // nothing was put out
#pragma unroll
            for (uint32_t i = 0; i < 8; ++i) v[i] = fmaf(more[i], factor, v[i]);
        }
        if (more_to_add)
            for (uint32_t i = 0; i < 8 && octet * 8 + i < cols; ++i)
                v[i] += __ldcv(share.sum + octet * 8 + i);
        if (used > 0) store_octet(row, octet, cols, v);
#pragma unroll
        for (float value : v) sum = fmaf(value, value, sum);
    }
    if (!values && !codes) return;
    const float total = block_sum<256>(sum, sums);
    const float factor = 1.0f / sqrtf(total / static_cast<float>(cols) + eps);
    std::byte* const code_row = codes + blockIdx.x * ordered_row_bytes(cols);
    for (uint32_t octet = threadIdx.x; octet < ordered_octets(cols); octet += 256) {
        if (cols > 8 * 256) {  // else they are still there
            load_octet(row, octet, cols, v);
            if (weight) load_octet(weight, octet, cols, w);
        }
        float normed[8];
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) {
            const float one = octet * 8 + i < cols ? v[i] * factor : 0.0f;
            normed[i] = weight ? one * w[i] : one;
        }
        if (values) store_octet(values + size_t{blockIdx.x} * cols, octet, cols, normed);
        if (codes) store_decode_codes(code_row, octet, normed);
    }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256)
    combine_norm_f16(const float* route_weights, uint32_t used, uint32_t cols, const __half* out,
                     float* x, const float* weight, float eps, float* values, std::byte* codes,
                     const __grid_constant__ CpuShare share) {
    combine_norm(route_weights, used, cols, out, x, weight, eps, values, codes, share);
}
extern "C" __global__ void __launch_bounds__(256)
    combine_norm_f32(const float* route_weights, uint32_t used, uint32_t cols, const float* out,
                     float* x, const float* weight, float eps, float* values, std::byte* codes,
                     const __grid_constant__ CpuShare share) {
    combine_norm(route_weights, used, cols, out, x, weight, eps, values, codes, share);
}

}  // namespace granary::gpu::cuda

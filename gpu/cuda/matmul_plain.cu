// SPDX-License-Identifier: GPL-3.0-or-later
// Matrix products of any weight type and any size, one output a warp: f32 arithmetic, and what the
// fast kernels do not take. Weights are decoded to f32 and products summed in f32, each lane its
// octets in order, then the lanes by halves.
#include "gpu/cuda/matmul.h"
#include "gpu/cuda/ordered_rows.h"
#include "gpu/cuda/portable.h"
#include "gpu/cuda/unpack.cuh"

namespace granary::gpu::cuda {
namespace {

// dot(weight row, activation row) in every lane.
__device__ float dot(WeightType type, const std::byte* row, const PlainRows& in, size_t index,
                     uint32_t cols) {
    float sum = 0;
    for (uint32_t octet = threadIdx.x % 32; octet < (cols + 7) / 8; octet += 32) {
        float weight[8];
        decode_octet(type, row, octet, cols, weight);
        const uint32_t count = min(cols - octet * 8, 8u);
        for (uint32_t i = 0; i < count; ++i) {
            const uint32_t col = octet * 8 + i;
            const float x = in.codes ? __half2float(reinterpret_cast<const __half*>(
                                           in.codes + index * in.code_bytes)[ordered_column(col)])
                                     : in.values[index * cols + col];
            sum = __fmaf_rn(weight[i], x, sum);
        }
    }
    for (uint32_t by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(~0u, sum, by);
    return sum;
}

}  // namespace

extern "C" {

// Grid: (rows, weight rows / 4), 128 threads.
__global__ void __launch_bounds__(128) matmul_plain(const PlainMatmul job) {
    const uint32_t row = blockIdx.y * 4 + threadIdx.x / 32;
    if (row >= job.features) return;
    const size_t at = size_t{blockIdx.x} * job.features + row;
    const float sum = dot(job.type, job.weight + row * job.row_bytes, job.in, blockIdx.x, job.cols);
    if (threadIdx.x % 32 == 0) job.out[at] = job.add ? job.out[at] + sum : sum;
}

// hidden = silu(gate x) * up x, at the route's row of the values, or of the codes at its place
// among the sorted routes. Grid: (routes, ffn / 4).
__global__ void __launch_bounds__(128) experts_plain_gate_up(const PlainExperts job) {
    const uint32_t place = blockIdx.x, feature = blockIdx.y * 4 + threadIdx.x / 32;
    const int32_t route = job.order ? job.order[place] : static_cast<int32_t>(place);
    const int32_t expert = job.expert[route];
    if (feature >= job.ffn || !job.list.has(expert)) return;
    const ExpertEntry entry = job.entries[expert];
    const uint32_t row = route / job.used;
    const float gate =
        dot(job.gate, entry.gate + feature * job.gate_row_bytes, job.in, row, job.hidden_size);
    const float up =
        dot(job.up, entry.up + feature * job.up_row_bytes, job.in, row, job.hidden_size);
    if (threadIdx.x % 32) return;
    const float value = gate / (1 + expf(-gate)) * up;
    if (job.hidden.codes)
        reinterpret_cast<__half*>(const_cast<std::byte*>(job.hidden.codes) +
                                  place * job.hidden.code_bytes)[ordered_column(feature)] =
            __float2half_rn(fminf(fmaxf(value, -65504.f), 65504.f));
    else
        const_cast<float*>(job.hidden.values)[size_t(route) * job.ffn + feature] = value;
}

// Grid: (routes, hidden / 4).
__global__ void __launch_bounds__(128) experts_plain_down(const PlainExperts job) {
    const uint32_t place = blockIdx.x, feature = blockIdx.y * 4 + threadIdx.x / 32;
    const int32_t route = job.order ? job.order[place] : static_cast<int32_t>(place);
    const int32_t expert = job.expert[route];
    if (feature >= job.hidden_size || !job.list.has(expert)) return;
    const float sum = dot(job.down, job.entries[expert].down + feature * job.down_row_bytes,
                          job.hidden, job.hidden.codes ? place : route, job.ffn);
    if (threadIdx.x % 32) return;
    const size_t at = size_t(route) * job.hidden_size + feature;
    if (job.hidden.codes)
        static_cast<__half*>(job.out)[at] = __float2half_rn(fminf(fmaxf(sum, -65504.f), 65504.f));
    else
        static_cast<float*>(job.out)[at] = sum;
}
}

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// RMS norm (Zhang and Sennrich 2019, equation 4), codes, and the sum of a token's experts.
#include "gpu/cuda/early.cuh"
#include "gpu/cuda/output_rows.cuh"
#include "gpu/cuda/rows.cuh"

namespace granary::gpu::cuda {

// A block a row. Work: 4 operations a value. Bytes: 4 read (again from L1), 4 + 2 written.
extern "C" __global__ void __launch_bounds__(256)
    rms_norm(const float* x, const float* weight, float eps, uint32_t cols, float* values,
             std::byte* codes) {
    __shared__ float sums[8];
    const float* const from = x + size_t{blockIdx.x} * cols;
    float sum = 0;
    for (uint32_t octet = threadIdx.x; octet * 8 < cols; octet += 256) {
        float v[8];
        load_octet(from, octet, cols, v);
#pragma unroll
        for (float value : v) sum = fmaf(value, value, sum);
    }
    const float total = block_sum<256>(sum, sums);
    const float factor = 1.0f / sqrtf(total / static_cast<float>(cols) + eps);
    std::byte* const row = codes + blockIdx.x * ordered_row_bytes(cols);
    for (uint32_t octet = threadIdx.x; octet < ordered_octets(cols); octet += 256) {
        float v[8], w[8];
        load_octet(from, octet, cols, v);
        if (weight) load_octet(weight, octet, cols, w);
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) v[i] = v[i] * factor * (weight ? w[i] : 1.0f);
        if (values) store_octet(values + size_t{blockIdx.x} * cols, octet, cols, v);
        if (codes) store_ordered(row, octet, v);
    }
}

// A thread an octet: grid (octets / 128, rows). Bytes: 4 read and 2 written a value.
extern "C" __global__ void __launch_bounds__(128)
    quantise(const float* values, uint32_t cols, std::byte* codes, bool decode) {
    const uint32_t octet = blockIdx.x * 128 + threadIdx.x;
    if (octet >= ordered_octets(cols)) return;
    float v[8];
    load_octet(values + size_t{blockIdx.y} * cols, octet, cols, v);
    store_codes(decode, codes + blockIdx.y * ordered_row_bytes(cols), octet, v);
}

// out = rms_norm(x) * weight * silu(gate). `lanes` of a warp, a power of two, have a head. Grid:
// (heads of 128 threads, rows). Work: about 30 operations a value. Bytes: 8 read, 4 + 2 written;
// values may be null. Codes of a decode step: of heads that are whole groups of them.
extern "C" __global__ void __launch_bounds__(128)
    gated_norm(const float* x, const float* weight, float eps, uint32_t dim, uint32_t lanes,
               uint32_t heads, const float* gate, float* values, std::byte* codes, bool decode) {
    let_next_begin();
    wait_for_kernels_ahead();
    const uint32_t head = (blockIdx.x * 128 + threadIdx.x) / lanes, lane = threadIdx.x % lanes;
    const bool there = head < heads;
    const uint32_t cols = heads * dim;
    const size_t at = size_t{blockIdx.y} * cols + head * dim;
    float sum = 0;
    for (uint32_t octet = lane; there && octet * 8 < dim; octet += lanes) {
        float v[8];
        load_octet(x + at, octet, dim, v);
#pragma unroll
        for (float value : v) sum = fmaf(value, value, sum);
    }
    for (uint32_t distance = lanes / 2; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(~0u, sum, distance);
    if (!there) return;
    const float factor = 1.0f / sqrtf(sum / static_cast<float>(dim) + eps);
    std::byte* const row = codes + blockIdx.y * ordered_row_bytes(cols);
    for (uint32_t octet = lane; octet * 8 < dim; octet += lanes) {
        float v[8], w[8], g[8];
        load_octet(x + at, octet, dim, v);
        load_octet(weight, octet, dim, w);
        load_octet(gate + at, octet, dim, g);
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) v[i] = times_sigmoid(v[i] * factor * w[i] * g[i], g[i]);
        if (values) store_octet(values + at, octet, dim, v);
        if (codes) store_codes(decode, row, head * (dim / 8) + octet, v);
    }
    // What fills up the row.
    for (uint32_t octet = cols / 8 + lane; codes && head == heads - 1; octet += lanes) {
        if (octet >= ordered_octets(cols)) break;
        const float zeros[8] = {};
        store_ordered(row, octet, zeros);
    }
}

namespace {

// A thread an octet: grid (octets / 128, rows). Work: 2 used operations a value. Bytes: used times
// an output, 8 for x.
template <class Output>
__device__ __forceinline__ void combine(const float* weights, uint32_t used, uint32_t hidden,
                                        const Output* out, float* x) {
    const uint32_t octet = blockIdx.x * 128 + threadIdx.x;
    if (octet * 8 >= hidden) return;
    const size_t route = size_t{blockIdx.y} * used;
    float* const row = x + size_t{blockIdx.y} * hidden;
    float sum[8];
    load_octet(row, octet, hidden, sum);
#pragma unroll 8
    for (uint32_t rank = 0; rank < used; ++rank) {
        float v[8];
        load_output(out + (route + rank) * hidden, octet, hidden, v);
        const float weight = weights[route + rank];
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) sum[i] = fmaf(v[i], weight, sum[i]);
    }
    store_octet(row, octet, hidden, sum);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(128)
    combine_f16(const float* weights, uint32_t used, uint32_t hidden, const __half* out, float* x) {
    combine(weights, used, hidden, out, x);
}
extern "C" __global__ void __launch_bounds__(128)
    combine_f32(const float* weights, uint32_t used, uint32_t hidden, const float* out, float* x) {
    combine(weights, used, hidden, out, x);
}

}  // namespace granary::gpu::cuda

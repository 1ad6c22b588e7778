// SPDX-License-Identifier: GPL-3.0-or-later
// Gates: sigmoids that let a part of a value through, the gates of a delta net, its short
// convolution, and the route to a shared expert.
#include "gpu/cuda/delta_inputs.cuh"
#include "gpu/cuda/early.cuh"
#include "gpu/cuda/norm_decode.cuh"
#include "gpu/cuda/shared_gate.cuh"

namespace granary::gpu::cuda {

// A thread an octet: grid (octets / 128, rows). Work: about 20 operations a value. Bytes: 8 read, 4
// + 2 written.
extern "C" __global__ void __launch_bounds__(128)
    gate_heads(const float* pairs, uint32_t heads, uint32_t dim, float* values, std::byte* codes,
               bool decode) {
    let_next_begin();
    wait_for_kernels_ahead();
    const uint32_t octet = blockIdx.x * 128 + threadIdx.x, octets = dim / 8, cols = heads * dim;
    float v[8] = {}, g[8];
    if (octet < heads * octets) {
        const size_t head = size_t{blockIdx.y} * heads + octet / octets;
        load_octet(values + head * dim, octet % octets, dim, v);
        load_octet(pairs + (head * 2 + 1) * dim, octet % octets, dim, g);
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) v[i] = times_sigmoid(v[i], g[i]);
        store_octet(values + head * dim, octet % octets, dim, v);
    }
    if (codes && octet < ordered_octets(cols))
        store_codes(decode, codes + blockIdx.y * ordered_row_bytes(cols), octet, v);
}

namespace {

// kTaps taps at most, known when this is compiled.
template <uint32_t kTaps>
__device__ __forceinline__ void convolve(const float* kernel, uint32_t taps, const float* x,
                                         uint32_t channels, uint32_t n, float* tail, float* out) {
    constexpr uint32_t kConvRows = 32;
    const uint32_t c = blockIdx.x * 128 + threadIdx.x;
    if (c >= channels) return;
    const auto row = [&](int64_t i) {
        return i < 0 ? tail[static_cast<size_t>(i + taps - 1) * channels + c]
                     : x[static_cast<size_t>(i) * channels + c];
    };
    // In the last places of kTaps, so that places are known when this is compiled.
    const uint32_t none = kTaps - taps;
    float weight[kTaps], value[kTaps];
    const uint32_t first = blockIdx.y * kConvRows, end = min(first + kConvRows, n);
#pragma unroll
    for (uint32_t t = 0; t < kTaps; ++t) {
        weight[t] = t >= none ? kernel[size_t{c} * taps + t - none] : 0.0f;
        value[t] = t >= none && t + 1 < kTaps ? row(int64_t{first} + t - (kTaps - 1)) : 0.0f;
    }
#pragma unroll 4
    for (uint32_t i = first; i < end; ++i) {
        value[kTaps - 1] = x[size_t{i} * channels + c];
        out[size_t{i} * channels + c] = convolved(weight, value, none);
#pragma unroll
        for (uint32_t t = 0; t + 1 < kTaps; ++t) value[t] = value[t + 1];
    }
    if (blockIdx.y > 0) return;
    // Oldest first: a row that comes from the tail itself comes from a later place.
    for (uint32_t t = 0; t + 1 < taps; ++t)
        tail[size_t{t} * channels + c] = row(int64_t{n} - (taps - 1) + t);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(128)
    delta_gates(const float* dt, const float* a, uint32_t heads, uint32_t values, float* alpha,
                float* beta) {
    let_next_begin();
    wait_for_kernels_ahead();
    const uint32_t i = blockIdx.x * 128 + threadIdx.x;
    if (i >= values) return;
    alpha[i] = decay_of(alpha[i], dt[i % heads], a[i % heads]);
    beta[i] = rate_of(beta[i]);
}

// A thread a channel and kConvRows rows: grid (channels / 128, rows / kConvRows). Only the first
// blocks of rows read the tail, so they renew it. Work: 2 taps + 15 operations a value. Bytes: 4
// read and 4 written.
extern "C" __global__ void __launch_bounds__(128)
    causal_conv(const float* kernel, uint32_t taps, const float* x, uint32_t channels, uint32_t n,
                float* tail, float* out) {
    let_next_begin();
    wait_for_kernels_ahead();
    if (taps == 4)
        convolve<4>(kernel, 4, x, channels, n, tail, out);
    else
        convolve<8>(kernel, taps, x, channels, n, tail, out);
}

// A warp a row, in double as the host does: a hidden width of products beside the expert itself.
extern "C" __global__ void __launch_bounds__(128)
    route_shared(const float* gate, const float* x, uint32_t hidden, uint32_t rows, int32_t* expert,
                 float* weight, int32_t* count, int32_t* first, int32_t* order) {
    let_next_begin();
    wait_for_kernels_ahead();
    const uint32_t row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        count[0] = first[1] = static_cast<int32_t>(rows);
        first[0] = 0;
    }
    if (row >= rows) return;
    double dot = 0;
    for (uint32_t i = lane; i < hidden; i += 32)
        dot = fma(static_cast<double>(gate[i]), static_cast<double>(x[size_t{row} * hidden + i]),
                  dot);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) dot += __shfl_xor_sync(~0u, dot, distance);
    if (lane != 0) return;
    expert[row] = 0;
    order[row] = static_cast<int32_t>(row);
    weight[row] = static_cast<float>(1 / (1 + exp(-dot)));
}

// The same of a decode step, a block a row: all of it is under way at once.
extern "C" __global__ void __launch_bounds__(128)
    route_shared_decode(const float* gate, const float* x, uint32_t hidden, uint32_t rows,
                        int32_t* expert, float* weight, int32_t* count, int32_t* first,
                        int32_t* order) {
    let_next_begin();
    wait_for_kernels_ahead();
    const uint32_t row = blockIdx.x;
    const float its = shared_weight(gate, x + size_t{row} * hidden, hidden);
    if (threadIdx.x > 0) return;
    if (row == 0) {
        count[0] = first[1] = static_cast<int32_t>(rows);
        first[0] = 0;
    }
    expert[row] = 0;
    order[row] = static_cast<int32_t>(row);
    weight[row] = its;
}

}  // namespace granary::gpu::cuda

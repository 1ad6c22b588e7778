// SPDX-License-Identifier: GPL-3.0-or-later
// Gates and the delta net's convolution: gates.cu, and gated_norm of norm.cu.
#include <algorithm>
#include <bit>

#include "gpu/cuda/kernels.h"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kThreads = 128;
constexpr uint32_t kConvRows = 32;  // of a thread of causal_conv
constexpr uint32_t kMostRows = 65535;
constexpr uint32_t kGroup = 32;  // columns that share a scale

unsigned blocks_for(size_t items, uint32_t each) {
    return static_cast<unsigned>((items + each - 1) / each);
}

}  // namespace

Result<void> CudaKernels::load_gates() {
    if (auto r = find("norm", {{"gated_norm", &gates_.gated_norm}}); !r) return r;
    return find("gates", {{"gate_heads", &gates_.gate_heads},
                          {"delta_gates", &gates_.delta_gates},
                          {"causal_conv", &gates_.causal_conv},
                          {"route_shared", &gates_.route_shared},
                          {"route_shared_decode", &gates_.route_shared_decode}});
}

void CudaKernels::gate_heads(const AttentionShape& shape, const float* pairs,
                             const Activations& out) {
    for (uint32_t first = 0; first < out.rows; first += kMostRows)
        queue_few(
            out.rows, gates_.gate_heads,
            {blocks_for((out.cols + 31) / 32 * 4, kThreads), std::min(out.rows - first, kMostRows)},
            {kThreads}, 0, pairs + size_t{first} * 2 * out.cols, shape.heads, shape.head_dim,
            out.values + size_t{first} * out.cols,
            out.codes ? out.codes + first * code_bytes(out.cols) : nullptr, out.decode);
}

void CudaKernels::delta_gates(const DeltaShape& shape, const float* dt, const float* a, uint32_t n,
                              float* alpha, float* beta) {
    const uint32_t values = n * shape.value_heads;
    if (values == 0) return;
    queue_few(n, gates_.delta_gates, {blocks_for(values, kThreads)}, {kThreads}, 0, dt, a,
              shape.value_heads, values, alpha, beta);
}

void CudaKernels::causal_conv(const DeltaShape& shape, const float* kernel, const float* x,
                              uint32_t n, float* tail, float* out) {
    if (n == 0) return;
    queue_few(n, gates_.causal_conv,
              {blocks_for(shape.channels(), kThreads), blocks_for(n, kConvRows)}, {kThreads}, 0,
              kernel, shape.taps, x, shape.channels(), n, tail, out);
}

void CudaKernels::gated_norm(const float* x, const float* weight, float eps, uint32_t dim,
                             const float* gate, const Activations& out) {
    // Groups of a decode step's codes may cross heads: they come afterwards then.
    const bool later = out.codes && out.decode && dim % kGroup != 0;
    const uint32_t lanes = std::min(std::bit_ceil((dim + 7) / 8), 32u), heads = out.cols / dim;
    float* const values = out.codes && !out.decode ? nullptr : out.values;
    for (uint32_t first = 0; first < out.rows; first += kMostRows) {
        const size_t at = size_t{first} * out.cols;
        queue_few(out.rows, gates_.gated_norm,
                  {blocks_for(heads, kThreads / lanes), std::min(out.rows - first, kMostRows)},
                  {kThreads}, 0, x + at, weight, eps, dim, lanes, heads, gate + at,
                  values ? values + at : nullptr,
                  out.codes && !later ? out.codes + first * code_bytes(out.cols) : nullptr,
                  out.decode);
    }
    if (later) quantise(out);
}

void CudaKernels::route_shared(const float* gate, const float* x, uint32_t hidden,
                               const Routes& routes) {
    if (routes.rows == 0) return;
    const auto queue_it = [&](Function function, uint32_t blocks) {
        queue_few(routes.rows, function, {blocks}, {kThreads}, 0, gate, x, hidden, routes.rows,
                  routes.expert, routes.weight, routes.count, routes.first, routes.order);
    };
    if (routes.decode)
        queue_it(gates_.route_shared_decode, routes.rows);
    else
        queue_it(gates_.route_shared, blocks_for(routes.rows, 4));
}

}  // namespace granary::gpu::cuda

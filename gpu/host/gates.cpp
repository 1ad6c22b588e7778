// SPDX-License-Identifier: GPL-3.0-or-later
// Gates: sigmoids that let a part of a value through, and the gates of a delta net.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/host/gates.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// After foreach_target.h: compiled for each target.
#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cmath>

#include "gpu/host/codes.h"
#include "gpu/host/host_kernels.h"
#include "gpu/host/rows.h"

HWY_BEFORE_NAMESPACE();
namespace granary::gpu::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// x *= 1 / (1 + exp(-gate)), times the gate itself for silu. The limit keeps exp finite.
template <bool kSilu>
HWY_ATTR void multiply_gate(float* x, const float* gate, size_t count) {
    const hn::ScalableTag<float> d;
    const size_t lanes = hn::Lanes(d), whole = count / lanes * lanes;
    const auto one = hn::Set(d, 1.0f), limit = hn::Set(d, 88.0f);
    for (size_t i = 0; i < whole; i += lanes) {
        const auto g = hn::LoadU(d, gate + i);
        const auto below = hn::Add(one, hn::Exp(d, hn::Min(hn::Neg(g), limit)));
        const auto v = hn::LoadU(d, x + i);
        hn::StoreU(hn::Div(kSilu ? hn::Mul(v, g) : v, below), d, x + i);
    }
    for (size_t i = whole; i < count; ++i)
        x[i] = (kSilu ? x[i] * gate[i] : x[i]) / (1 + std::exp(std::min(-gate[i], 88.0f)));
}

HWY_ATTR void sigmoid(float* x, const float* gate, size_t count) {
    multiply_gate<false>(x, gate, count);
}
HWY_ATTR void silu(float* x, const float* gate, size_t count) {
    multiply_gate<true>(x, gate, count);
}

}  // namespace granary::gpu::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace granary::gpu::host {

HWY_EXPORT(sigmoid);
HWY_EXPORT(silu);

void multiply_sigmoid(float* x, const float* gate, size_t count) {
    HWY_DYNAMIC_DISPATCH(sigmoid)(x, gate, count);
}
void multiply_silu(float* x, const float* gate, size_t count) {
    HWY_DYNAMIC_DISPATCH(silu)(x, gate, count);
}

// Work: about 20 operations a value. Bytes: 8 read and 4 written.
void HostKernels::gate_heads(const AttentionShape& shape, const float* pairs,
                             const Activations& out) {
    const size_t dim = shape.head_dim, bytes = out.codes ? code_bytes(out.cols) : 0;
    for_rows(out.rows, out.cols, [&](uint32_t row) {
        float* values = out.values + size_t{row} * out.cols;
        const float* gates = pairs + size_t{row} * 2 * out.cols + dim;
        for (size_t h = 0; h < shape.heads; ++h)
            multiply_sigmoid(values + h * dim, gates + h * 2 * dim, dim);
        if (out.codes) quantise_row(values, out.cols, out.codes + row * bytes);
    });
}

void HostKernels::delta_gates(const DeltaShape& shape, const float* dt, const float* a, uint32_t n,
                              float* alpha, float* beta) {
    for_rows(n, size_t{shape.value_heads} * 16, [&](uint32_t row) {
        for (uint32_t h = 0; h < shape.value_heads; ++h) {
            float& decay = alpha[size_t{row} * shape.value_heads + h];
            float& rate = beta[size_t{row} * shape.value_heads + h];
            const float x = decay + dt[h];
            // Above 20 softplus is x to f32.
            decay = a[h] * (x > 20 ? x : std::log1p(std::exp(x)));
            rate = 1 / (1 + std::exp(-rate));
        }
    });
}

// Work: about 30 operations a value. Bytes: 8 read and 4 written.
void HostKernels::gated_norm(const float* x, const float* weight, float eps, uint32_t dim,
                             const float* gate, const Activations& out) {
    const size_t bytes = out.codes ? code_bytes(out.cols) : 0;
    for_rows(out.rows, out.cols, [&](uint32_t row) {
        const size_t first = size_t{row} * out.cols;
        for (size_t at = first; at < first + out.cols; at += dim)
            rms_norm_row(x + at, weight, eps, dim, out.values + at);
        multiply_silu(out.values + first, gate + first, out.cols);
        if (out.codes) quantise_row(out.values + first, out.cols, out.codes + row * bytes);
    });
}

void HostKernels::route_shared(const float* gate, const float* x, uint32_t hidden,
                               const Routes& routes) {
    const auto rows = static_cast<int32_t>(routes.rows);
    routes.count[0] = routes.first[1] = rows;
    routes.first[0] = 0;
    for_rows(routes.rows, hidden, [&](uint32_t row) {
        // In double and in order: 2 hidden operations, nothing beside the expert itself.
        double dot = 0;
        for (uint32_t i = 0; i < hidden; ++i)
            dot += static_cast<double>(gate[i]) * x[size_t{row} * hidden + i];
        routes.expert[row] = 0;
        routes.order[row] = static_cast<int32_t>(row);
        routes.weight[row] = static_cast<float>(1 / (1 + std::exp(-dot)));
    });
}

}  // namespace granary::gpu::host
#endif

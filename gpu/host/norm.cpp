// SPDX-License-Identifier: GPL-3.0-or-later
// RMS norm (Zhang and Sennrich 2019, equation 4) and the sum of a token's experts.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/host/norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "gpu/host/codes.h"
#include "gpu/host/host_kernels.h"
#include "gpu/host/rows.h"

HWY_BEFORE_NAMESPACE();
namespace granary::gpu::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_ATTR void norm(const float* x, const float* weight, float eps, uint32_t cols, float* out) {
    const hn::ScalableTag<float> d;
    const size_t lanes = hn::Lanes(d), whole = cols / lanes * lanes;
    auto sum = hn::Zero(d);
    for (size_t i = 0; i < whole; i += lanes) {
        const auto v = hn::LoadU(d, x + i);
        sum = hn::MulAdd(v, v, sum);
    }
    float total = hn::GetLane(hn::SumOfLanes(d, sum));
    for (size_t i = whole; i < cols; ++i) total += x[i] * x[i];
    const float factor = 1.0f / std::sqrt(total / static_cast<float>(cols) + eps);
    const auto factors = hn::Set(d, factor);
    for (size_t i = 0; i < whole; i += lanes) {
        auto v = hn::Mul(hn::LoadU(d, x + i), factors);
        if (weight) v = hn::Mul(v, hn::LoadU(d, weight + i));
        hn::StoreU(v, d, out + i);
    }
    for (size_t i = whole; i < cols; ++i) out[i] = x[i] * factor * (weight ? weight[i] : 1.0f);
}

HWY_ATTR void scaled_sum(float* x, const float* y, float factor, size_t count) {
    const hn::ScalableTag<float> d;
    const size_t lanes = hn::Lanes(d), whole = count / lanes * lanes;
    const auto factors = hn::Set(d, factor);
    for (size_t i = 0; i < whole; i += lanes)
        hn::StoreU(hn::MulAdd(hn::LoadU(d, y + i), factors, hn::LoadU(d, x + i)), d, x + i);
    for (size_t i = whole; i < count; ++i) x[i] += factor * y[i];
}

}  // namespace granary::gpu::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace granary::gpu::host {

HWY_EXPORT(norm);
HWY_EXPORT(scaled_sum);

void rms_norm_row(const float* x, const float* weight, float eps, uint32_t cols, float* out) {
    HWY_DYNAMIC_DISPATCH(norm)(x, weight, eps, cols, out);
}

void add_scaled(float* x, const float* y, float factor, size_t count) {
    HWY_DYNAMIC_DISPATCH(scaled_sum)(x, y, factor, count);
}

// Work: 4 operations a value, 10 with codes. Bytes: 8 read (x twice, once from L1), 4 written.
void HostKernels::rms_norm(const float* x, const float* weight, float eps, const Activations& out) {
    const size_t bytes = out.codes ? code_bytes(out.cols) : 0;
    for_rows(out.rows, out.cols, [&](uint32_t row) {
        float* values = out.values + size_t{row} * out.cols;
        rms_norm_row(x + size_t{row} * out.cols, weight, eps, out.cols, values);
        if (out.codes) quantise_row(values, out.cols, out.codes + row * bytes);
    });
}

// Work: 2 used operations a value. Bytes: 4 used read, 8 for x.
void HostKernels::combine(const Routes& routes, uint32_t used, uint32_t hidden, const void* outputs,
                          float* x) {
    const auto* const out = static_cast<const float*>(outputs);
    for_rows(routes.rows, size_t{used} * hidden, [&](uint32_t row) {
        for (uint32_t rank = 0; rank < used; ++rank) {
            const size_t route = size_t{row} * used + rank;
            add_scaled(x + size_t{row} * hidden, out + route * hidden, routes.weight[route],
                       hidden);
        }
    });
}

}  // namespace granary::gpu::host
#endif

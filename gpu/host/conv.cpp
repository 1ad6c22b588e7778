// SPDX-License-Identifier: GPL-3.0-or-later
// The short convolution in front of a delta net: each channel by itself, over the last few tokens.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/host/conv.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// After foreach_target.h: compiled for each target.
#include <hwy/contrib/math/math-inl.h>

#include <algorithm>

#include "gpu/host/host_kernels.h"

#ifndef GRANARY_CONV_SHARED
#define GRANARY_CONV_SHARED
namespace granary::gpu::host {
constexpr uint32_t kConvChannels = 16;  // a cache line of f32
constexpr uint32_t kMostTaps = 8;
struct ConvRows {
    const float* x;
    const float* tail;
    size_t channels;
    int64_t before;  // rows of tail
    const float* row(int64_t i) const {
        return i < 0 ? tail + static_cast<size_t>(before + i) * channels
                     : x + static_cast<size_t>(i) * channels;
    }
};
}  // namespace granary::gpu::host
#endif

HWY_BEFORE_NAMESPACE();
namespace granary::gpu::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// out = silu(convolution) of kConvChannels channels from `channel` on; weights [taps][16].
HWY_ATTR void convolve(const ConvRows& rows, const float* weights, uint32_t taps, size_t channel,
                       uint32_t n, float* out) {
    const hn::CappedTag<float, kConvChannels> d;
    const auto one = hn::Set(d, 1.0f), limit = hn::Set(d, 88.0f);
    for (uint32_t i = 0; i < n; ++i) {
        for (size_t lane = 0; lane < kConvChannels; lane += hn::Lanes(d)) {
            auto sum = hn::Zero(d);
            for (uint32_t t = 0; t < taps; ++t) {
                const float* x = rows.row(int64_t{i} + t + 1 - taps) + channel + lane;
                sum = hn::MulAdd(hn::LoadU(d, weights + t * kConvChannels + lane), hn::LoadU(d, x),
                                 sum);
            }
            const auto below = hn::Add(one, hn::Exp(d, hn::Min(hn::Neg(sum), limit)));
            hn::StoreU(hn::Div(sum, below), d, out + i * rows.channels + channel + lane);
        }
    }
}

}  // namespace granary::gpu::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace granary::gpu::host {

HWY_EXPORT(convolve);

// Work: 2 taps + 15 operations a value. Bytes: 4 read from memory and 4 written.
void HostKernels::causal_conv(const DeltaShape& shape, const float* kernel, const float* x,
                              uint32_t n, float* tail, float* out) {
    const size_t channels = shape.channels();
    const uint32_t taps = shape.taps, before = taps - 1;
    const ConvRows rows{x, tail, channels, before};
    const auto some = [&](size_t begin, size_t end) {
        float weights[kMostTaps * kConvChannels];
        for (size_t c = begin; c < end; c += kConvChannels) {
            for (uint32_t t = 0; t < taps; ++t)
                for (size_t lane = 0; lane < kConvChannels; ++lane)
                    weights[t * kConvChannels + lane] = kernel[(c + lane) * taps + t];
            HWY_DYNAMIC_DISPATCH(convolve)(rows, weights, taps, c, n, out);
            // Oldest first: a row that comes from the tail itself comes from a later place.
            for (uint32_t t = 0; t < before; ++t)
                std::copy_n(rows.row(int64_t{n} - before + t) + c, kConvChannels,
                            tail + t * channels + c);
        }
    };
    if (size_t{n} * channels <= kInline) return some(0, channels);
    pool_.run([&](unsigned worker) {
        const Share part = share(channels, kConvChannels, worker, pool_.threads());
        some(part.begin, part.end);
    });
}

}  // namespace granary::gpu::host
#endif

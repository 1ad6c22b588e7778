// SPDX-License-Identifier: GPL-3.0-or-later
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/host/argmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "gpu/host/host_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace granary::gpu::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Each lane keeps its first maximum; NaN never compares greater.
HWY_ATTR int32_t largest(const float* x, uint32_t count) {
    const hn::ScalableTag<float> d;
    const hn::RebindToSigned<decltype(d)> di;
    const size_t lanes = hn::Lanes(d);
    const uint32_t whole = static_cast<uint32_t>(count / lanes * lanes);
    float best = -HUGE_VALF;
    int32_t index = 0;
    if (whole) {
        auto value = hn::Set(d, best);
        auto where = hn::Zero(di);
        auto here = hn::Iota(di, 0);
        for (uint32_t i = 0; i < whole; i += static_cast<uint32_t>(lanes)) {
            const auto v = hn::LoadU(d, x + i);
            const auto greater = hn::Gt(v, value);
            value = hn::IfThenElse(greater, v, value);
            where = hn::IfThenElse(hn::RebindMask(di, greater), here, where);
            here = hn::Add(here, hn::Set(di, static_cast<int32_t>(lanes)));
        }
        HWY_ALIGN float values[HWY_MAX_BYTES / sizeof(float)];
        HWY_ALIGN int32_t places[HWY_MAX_BYTES / sizeof(float)];
        hn::Store(value, d, values);
        hn::Store(where, di, places);
        for (size_t lane = 0; lane < lanes; ++lane) {
            if (values[lane] > best || (values[lane] == best && places[lane] < index)) {
                best = values[lane];
                index = places[lane];
            }
        }
    }
    for (uint32_t i = whole; i < count; ++i) {
        if (x[i] > best) {
            best = x[i];
            index = static_cast<int32_t>(i);
        }
    }
    return index;
}

}  // namespace granary::gpu::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace granary::gpu::host {

HWY_EXPORT(largest);

// Work: 3 operations a value. Bytes: 4 read.
void HostKernels::argmax(const float* logits, uint32_t n, uint32_t vocab, int32_t* best) {
    for_rows(n, vocab, [&](uint32_t row) {
        best[row] = HWY_DYNAMIC_DISPATCH(largest)(logits + size_t{row} * vocab, vocab);
    });
}

}  // namespace granary::gpu::host
#endif

// SPDX-License-Identifier: GPL-3.0-or-later
// Activations to 8 bits: scale = max|x| / 127 per group of 32, code = rint(x / scale).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/host/quantise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "gpu/host/codes.h"
#include "gpu/host/host_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace granary::gpu::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One group of 32 values.
HWY_ATTR void quantise_group(const float* values, CodeGroup* out) {
    const hn::CappedTag<float, 16> df;
    const hn::RebindToSigned<decltype(df)> di;
    const hn::Rebind<int16_t, decltype(df)> d16;
    const hn::Rebind<int8_t, decltype(df)> d8;
    const size_t lanes = hn::Lanes(df);

    auto largest = hn::Abs(hn::LoadU(df, values));
    for (size_t i = lanes; i < kGroup; i += lanes)
        largest = hn::Max(largest, hn::Abs(hn::LoadU(df, values + i)));
    const float limit = hn::GetLane(hn::MaxOfLanes(df, largest));
    const float scale = limit / 127.0f;
    const auto inverse = hn::Set(df, limit > 0 ? 127.0f / limit : 0.0f);

    int32_t total = 0;
    for (size_t half = 0; half < 2; ++half) {
        auto sum = hn::Zero(di);
        for (size_t i = 0; i < 16; i += lanes) {
            const size_t at = half * 16 + i;
            const auto code = hn::NearestInt(hn::Mul(hn::LoadU(df, values + at), inverse));
            const auto narrow = hn::DemoteTo(d8, hn::DemoteTo(d16, code));
            hn::StoreU(narrow, d8, out->code + at);
            sum = hn::Add(sum, hn::PromoteTo(di, hn::PromoteTo(d16, narrow)));
        }
        const int32_t half_sum = hn::GetLane(hn::SumOfLanes(di, sum));
        out->negative[half] = -half_sum;
        total += half_sum;
    }
    out->scale = scale;
    out->sum = scale * static_cast<float>(total);
}

HWY_ATTR void quantise(const float* values, uint32_t cols, std::byte* codes) {
    auto* group = reinterpret_cast<CodeGroup*>(codes);
    for (; cols >= kGroup; cols -= kGroup, values += kGroup, ++group) quantise_group(values, group);
    if (cols == 0) return;
    float padded[kGroup] = {};
    for (uint32_t i = 0; i < cols; ++i) padded[i] = values[i];
    quantise_group(padded, group);
}

}  // namespace granary::gpu::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace granary::gpu::host {

HWY_EXPORT(quantise);

void quantise_row(const float* values, uint32_t cols, std::byte* codes) {
    HWY_DYNAMIC_DISPATCH(quantise)(values, cols, codes);
}

// Work: 6 operations a value. Bytes: 4 read, 1.5 written.
void HostKernels::quantise(const Activations& a) {
    if (!a.codes) return;
    const size_t bytes = code_bytes(a.cols);
    for_rows(a.rows, a.cols, [&](uint32_t row) {
        quantise_row(a.values + size_t{row} * a.cols, a.cols, a.codes + row * bytes);
    });
}

}  // namespace granary::gpu::host
#endif

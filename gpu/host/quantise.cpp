// SPDX-License-Identifier: GPL-3.0-or-later
// Activations to codes: scale = max|x| / 127 per group of 32, code = rint(x / scale); then the same
// with what is left over and scale / 254.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/host/quantise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "gpu/host/codes.h"
#include "gpu/host/host_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace granary::gpu::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One group of 32 values; what the codes leave over goes to `rest`.
HWY_ATTR void quantise_group(const float* values, float scale, float inverse, CodeGroup* out,
                             float* rest) {
    const hn::CappedTag<float, 16> df;
    const hn::RebindToSigned<decltype(df)> di;
    const hn::Rebind<int16_t, decltype(df)> d16;
    const hn::Rebind<int8_t, decltype(df)> d8;
    const size_t lanes = hn::Lanes(df);
    const auto by = hn::Set(df, inverse), back = hn::Set(df, scale);

    int32_t total = 0;
    for (size_t half = 0; half < 2; ++half) {
        auto sum = hn::Zero(di);
        for (size_t i = 0; i < 16; i += lanes) {
            const size_t at = half * 16 + i;
            const auto value = hn::LoadU(df, values + at);
            const auto narrow =
                hn::DemoteTo(d8, hn::DemoteTo(d16, hn::NearestInt(hn::Mul(value, by))));
            const auto code = hn::PromoteTo(di, hn::PromoteTo(d16, narrow));
            hn::StoreU(narrow, d8, out->code + at);
            hn::StoreU(hn::NegMulAdd(hn::ConvertTo(df, code), back, value), df, rest + at);
            sum = hn::Add(sum, code);
        }
        const int32_t half_sum = hn::GetLane(hn::SumOfLanes(di, sum));
        out->negative[half] = -half_sum;
        total += half_sum;
    }
    out->scale = scale;
    out->sum = scale * static_cast<float>(total);
}

HWY_ATTR float largest_of(const float* values) {
    const hn::CappedTag<float, 16> df;
    auto largest = hn::Abs(hn::LoadU(df, values));
    for (size_t i = hn::Lanes(df); i < kGroup; i += hn::Lanes(df))
        largest = hn::Max(largest, hn::Abs(hn::LoadU(df, values + i)));
    return hn::GetLane(hn::MaxOfLanes(df, largest));
}

// fine null: coarse groups only.
HWY_ATTR void quantise(const float* values, uint32_t cols, CodeGroup* coarse, CodeGroup* fine) {
    alignas(64) float padded[kGroup];
    alignas(64) float rest[kGroup];
    alignas(64) float lost[kGroup];
    for (uint32_t col = 0; col < cols; col += kGroup, values += kGroup, ++coarse) {
        const float* group = values;
        if (cols - col < kGroup) {
            std::fill_n(padded, kGroup, 0.0f);
            std::copy_n(values, cols - col, padded);
            group = padded;
        }
        const float limit = largest_of(group);
        const float inverse = limit > 0 ? 127.0f / limit : 0.0f;
        quantise_group(group, limit / 127.0f, inverse, coarse, rest);
        // What is left over is at most half a step.
        if (fine) quantise_group(rest, limit / (127.0f * 254.0f), 254.0f * inverse, fine++, lost);
    }
}

}  // namespace granary::gpu::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace granary::gpu::host {

HWY_EXPORT(quantise);

void quantise_row(const float* values, uint32_t cols, std::byte* codes) {
    auto* groups = reinterpret_cast<CodeGroup*>(codes);
    HWY_DYNAMIC_DISPATCH(quantise)(values, cols, groups, groups + groups_of(cols));
}

void quantise_coarse(const float* values, uint32_t cols, std::byte* codes) {
    HWY_DYNAMIC_DISPATCH(quantise)(values, cols, reinterpret_cast<CodeGroup*>(codes), nullptr);
}

// Work: 14 operations a value. Bytes: 4 read, 3 written.
void HostKernels::quantise(const Activations& a) {
    if (!a.codes) return;
    const size_t bytes = code_bytes(a.cols);
    for_rows(a.rows, a.cols, [&](uint32_t row) {
        quantise_row(a.values + size_t{row} * a.cols, a.cols, a.codes + row * bytes);
    });
}

}  // namespace granary::gpu::host
#endif

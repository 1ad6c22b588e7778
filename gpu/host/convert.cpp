// SPDX-License-Identifier: GPL-3.0-or-later
// 16-bit floats to f32 and back, in vectors.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/host/convert.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/cache_control.h>

#include "gpu/host/half.h"
#include "gpu/host/rows.h"

HWY_BEFORE_NAMESPACE();
namespace granary::gpu::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
// Highway's emulation of half floats flushes what hardware keeps.
HWY_ATTR void narrow(const float* from, size_t count, uint16_t* to) {
    for (size_t i = 0; i < count; ++i) to[i] = float_to_half(from[i]);
}
HWY_ATTR void widen(const uint16_t* from, size_t count, float* to) {
    for (size_t i = 0; i < count; ++i) to[i] = half_to_float(from[i]);
}
#else
HWY_ATTR void narrow(const float* from, size_t count, uint16_t* to) {
    const hn::CappedTag<float, 16> d;
    const hn::Rebind<hwy::float16_t, decltype(d)> dh;
    const size_t lanes = hn::Lanes(d), whole = count / lanes * lanes;
    for (size_t i = 0; i < whole; i += lanes)
        hn::StoreU(hn::DemoteTo(dh, hn::LoadU(d, from + i)), dh,
                   reinterpret_cast<hwy::float16_t*>(to + i));
    for (size_t i = whole; i < count; ++i) to[i] = float_to_half(from[i]);
}
HWY_ATTR void widen(const uint16_t* from, size_t count, float* to) {
    const hn::CappedTag<float, 16> d;
    const hn::Rebind<hwy::float16_t, decltype(d)> dh;
    const size_t lanes = hn::Lanes(d), whole = count / lanes * lanes;
    for (size_t i = 0; i < whole; i += lanes)
        hn::StoreU(
            hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from + i))), d,
            to + i);
    for (size_t i = whole; i < count; ++i) to[i] = half_to_float(from[i]);
}
#endif

// bfloat16 is the upper half of an f32.
HWY_ATTR void widen_bfloat(const uint16_t* from, size_t count, float* to) {
    const hn::CappedTag<float, 16> d;
    const hn::RebindToUnsigned<decltype(d)> du;
    const hn::Rebind<uint16_t, decltype(d)> d16;
    const size_t lanes = hn::Lanes(d), whole = count / lanes * lanes;
    for (size_t i = 0; i < whole; i += lanes) {
        const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, from + i)));
        hn::StoreU(hn::BitCast(d, bits), d, to + i);
    }
    for (size_t i = whole; i < count; ++i) to[i] = bfloat_to_float(from[i]);
}

HWY_ATTR void widen_rows(const std::byte* from, size_t stride, size_t rows, size_t count, float* to,
                         size_t to_stride) {
    for (size_t row = 0; row < rows; ++row, from += stride, to += to_stride) {
        // The rows of the next tile; what lies past the end is not read.
        for (size_t byte = 0; byte < 2 * count; byte += 64)
            hwy::Prefetch(from + rows * stride + byte);
        widen(reinterpret_cast<const uint16_t*>(from), count, to);
    }
}

}  // namespace granary::gpu::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace granary::gpu::host {

HWY_EXPORT(narrow);
HWY_EXPORT(widen);
HWY_EXPORT(widen_rows);
HWY_EXPORT(widen_bfloat);

void to_half(const float* from, size_t count, uint16_t* to) {
    HWY_DYNAMIC_DISPATCH(narrow)(from, count, to);
}
void from_half(const uint16_t* from, size_t count, float* to) {
    HWY_DYNAMIC_DISPATCH(widen)(from, count, to);
}
void rows_from_half(const std::byte* from, size_t stride, size_t rows, size_t count, float* to,
                    size_t to_stride) {
    HWY_DYNAMIC_DISPATCH(widen_rows)(from, stride, rows, count, to, to_stride);
}
void from_bfloat(const uint16_t* from, size_t count, float* to) {
    HWY_DYNAMIC_DISPATCH(widen_bfloat)(from, count, to);
}

}  // namespace granary::gpu::host
#endif

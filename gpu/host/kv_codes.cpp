// SPDX-License-Identifier: GPL-3.0-or-later
// Nothing is summed and a code times its scale is exact in f32, so that targets cannot differ.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/host/kv_codes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/cache_control.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "gpu/host/half.h"
#include "gpu/host/kv_codes.h"

HWY_BEFORE_NAMESPACE();
namespace granary::gpu::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Heads are multiples of 8 and so are groups; half a 4-bit group is a multiple of 4.
using Wide = hn::CappedTag<float, 16>;
using Narrow = hn::CappedTag<float, 4>;

// The half float at `scale`, in all lanes.
template <class D>
HWY_ATTR HWY_INLINE hn::Vec<D> broadcast_half(D d, const std::byte* scale) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
    return hn::Set(d, load_half(scale));  // as in convert.cpp
#else
    const hn::Rebind<uint16_t, D> d16;
    const hn::Rebind<hwy::float16_t, D> dh;
    return hn::PromoteTo(d, hn::BitCast(dh, hn::Set(d16, load<uint16_t>(scale))));
#endif
}

// ---- codes to values

template <class D>
HWY_ATTR HWY_INLINE void decode_int8(D d, const std::byte* codes, hn::Vec<D> scale, float* to) {
    const hn::Rebind<int8_t, D> d8;
    const hn::RebindToSigned<D> di;
    const auto code = hn::LoadU(d8, reinterpret_cast<const int8_t*>(codes));
    hn::StoreU(hn::Mul(hn::ConvertTo(d, hn::PromoteTo(di, code)), scale), d, to);
}

// The low nibbles to `low` and the high ones to `high`.
template <class D>
HWY_ATTR HWY_INLINE void decode_int4(D d, const std::byte* codes, hn::Vec<D> scale, float* low,
                                     float* high) {
    const hn::Rebind<uint8_t, D> d8;
    const hn::RebindToSigned<D> di;
    const hn::RebindToUnsigned<D> du;
    const auto pair = hn::PromoteTo(du, hn::LoadU(d8, reinterpret_cast<const uint8_t*>(codes)));
    const auto l = hn::ShiftRight<28>(hn::BitCast(di, hn::ShiftLeft<28>(pair)));
    const auto h = hn::ShiftRight<28>(hn::BitCast(di, hn::ShiftLeft<24>(pair)));
    hn::StoreU(hn::Mul(hn::ConvertTo(d, l), scale), d, low);
    hn::StoreU(hn::Mul(hn::ConvertTo(d, h), scale), d, high);
}

// One group of `count` values.
template <KvCodes kCodes>
HWY_ATTR HWY_INLINE void decode_group(const std::byte* codes, const std::byte* scale,
                                      uint32_t count, float* to) {
    constexpr bool kHalves = kCodes == KvCodes::int4;
    const uint32_t bytes = kHalves ? count / 2 : count;
    uint32_t i = 0;
    const auto run = [&](auto d) HWY_ATTR {
        const auto lanes = static_cast<uint32_t>(hn::Lanes(d));
        if (i + lanes > bytes) return;
        const auto factor = broadcast_half(d, scale);
        for (; i + lanes <= bytes; i += lanes) {
            if constexpr (kHalves)
                decode_int4(d, codes + i, factor, to + i, to + bytes + i);
            else
                decode_int8(d, codes + i, factor, to + i);
        }
    };
    run(Wide());
    run(Narrow());
}

template <KvCodes kCodes>
HWY_ATTR void decode(const CodeRows& from, uint32_t dim, float* to, size_t stride) {
    constexpr uint32_t kGroup = kv_group(kCodes);
    constexpr uint32_t kGroupBytes = static_cast<uint32_t>(kv_code_bytes(kCodes, kGroup));
    const size_t bytes = kv_code_bytes(kCodes, dim);
    const std::byte* codes = from.codes;
    const std::byte* scales = from.scales;
    for (uint32_t row = 0; row < from.rows; ++row) {
        // The rows of the next tile; what lies past the end is not read.
        for (size_t byte = 0; byte < bytes; byte += 64)
            hwy::Prefetch(codes + from.rows * from.code_row + byte);
        hwy::Prefetch(scales + from.rows * from.scale_row);
        const std::byte* code = codes;
        const std::byte* scale = scales;
        uint32_t j = 0;
        for (; j + kGroup <= dim; j += kGroup, code += kGroupBytes, scale += 2)
            decode_group<kCodes>(code, scale, kGroup, to + j);
        if (j < dim) decode_group<kCodes>(code, scale, dim - j, to + j);
        codes += from.code_row;
        scales += from.scale_row;
        to += stride;
    }
}
HWY_ATTR void decode_int8_rows(const CodeRows& from, uint32_t dim, float* to, size_t stride) {
    decode<KvCodes::int8>(from, dim, to, stride);
}
HWY_ATTR void decode_int4_rows(const CodeRows& from, uint32_t dim, float* to, size_t stride) {
    decode<KvCodes::int4>(from, dim, to, stride);
}

// ---- values to codes

// f(d, i) for whole vectors at i in [0, count), then for narrow ones; count is a multiple of 4.
template <class F>
HWY_ATTR HWY_INLINE void in_vectors(uint32_t count, F&& f) {
    uint32_t i = 0;
    for (; i + hn::Lanes(Wide()) <= count; i += hn::Lanes(Wide())) f(Wide(), i);
    for (; i < count; i += hn::Lanes(Narrow())) f(Narrow(), i);
}

// Of positive floats larger bits are larger values, and NaN is the largest of all.
HWY_ATTR float largest_of(const float* x, uint32_t count) {
    int32_t largest = 0;
    in_vectors(count, [&](auto d, uint32_t i) HWY_ATTR {
        const hn::RebindToSigned<decltype(d)> di;
        const auto bits = hn::BitCast(di, hn::Abs(hn::LoadU(d, x + i)));
        largest = std::max(largest, hn::GetLane(hn::MaxOfLanes(di, bits)));
    });
    return std::bit_cast<float>(largest);
}

// clamp(rint(x[i] / scale)) of a vector.
template <class D>
HWY_ATTR HWY_INLINE hn::VFromD<hn::RebindToSigned<D>> codes_of(D d, const float* x, float scale,
                                                               float limit) {
    const auto ratio = hn::Div(hn::LoadU(d, x), hn::Set(d, scale));
    return hn::NearestInt(hn::Min(hn::Max(ratio, hn::Set(d, -limit)), hn::Set(d, limit)));
}

HWY_ATTR void encode_int8(const float* x, uint32_t count, float scale, std::byte* to) {
    in_vectors(count, [&](auto d, uint32_t i) HWY_ATTR {
        const hn::Rebind<int8_t, decltype(d)> d8;
        const auto codes = hn::DemoteTo(d8, codes_of(d, x + i, scale, 127));
        hn::StoreU(codes, d8, reinterpret_cast<int8_t*>(to + i));
    });
}

HWY_ATTR void encode_int4(const float* x, uint32_t count, float scale, std::byte* to) {
    in_vectors(count / 2, [&](auto d, uint32_t i) HWY_ATTR {
        const hn::Rebind<uint8_t, decltype(d)> d8;
        const hn::RebindToSigned<decltype(d)> di;
        const auto nibble = hn::Set(di, 15);
        const auto low = hn::And(codes_of(d, x + i, scale, 7), nibble);
        const auto high = hn::And(codes_of(d, x + count / 2 + i, scale, 7), nibble);
        const auto pair = hn::DemoteTo(d8, hn::Or(low, hn::ShiftLeft<4>(high)));
        hn::StoreU(pair, d8, reinterpret_cast<uint8_t*>(to + i));
    });
}

HWY_ATTR void encode(KvCodes kind, const float* x, uint32_t dim, std::byte* to, std::byte* scales) {
    const bool wide = kind == KvCodes::int8;
    for (uint32_t j = 0; j < dim; j += kv_group(kind), scales += sizeof(uint16_t)) {
        const uint32_t count = std::min(kv_group(kind), dim - j);
        const uint16_t half = float_to_half(largest_of(x + j, count) / (wide ? 127.0f : 7.0f));
        std::memcpy(scales, &half, sizeof half);
        const float scale = half_to_float(half);
        if (scale == 0)
            std::memset(to, 0, kv_code_bytes(kind, count));
        else if (wide)
            encode_int8(x + j, count, scale, to);
        else
            encode_int4(x + j, count, scale, to);
        to += kv_code_bytes(kind, count);
    }
}

// ---- rotation

// Butterflies between lanes 2^kBit apart, `partner` being v with these exchanged: a lane becomes
// the sum of the two, or, the upper one, the lower one minus itself.
template <int kBit, class D>
HWY_ATTR HWY_INLINE hn::Vec<D> butterfly(D d, hn::Vec<D> partner, hn::Vec<D> v) {
    const hn::RebindToUnsigned<D> du;
    const auto upper = hn::And(hn::ShiftLeft<31 - kBit>(hn::Iota(du, 0)), hn::Set(du, 1u << 31));
    return hn::Add(partner, hn::Xor(v, hn::BitCast(d, upper)));
}

// The transform of `run` values, times `scale`, a power of two and at least as many as there are
// lanes.
template <class D>
HWY_ATTR HWY_INLINE void transform(D d, float* x, uint32_t run, float scale) {
    const auto lanes = static_cast<uint32_t>(hn::Lanes(d));
    const auto factor = hn::Set(d, scale);
    for (uint32_t i = 0; i < run; i += lanes) {
        auto v = hn::Mul(hn::LoadU(d, x + i), factor);
#if HWY_TARGET != HWY_SCALAR
        v = butterfly<0>(d, hn::Shuffle2301(v), v);
        v = butterfly<1>(d, hn::Shuffle1032(v), v);
        if constexpr (hn::MaxLanes(D()) >= 8) v = butterfly<2>(d, hn::SwapAdjacentBlocks(v), v);
        if constexpr (hn::MaxLanes(D()) >= 16)
            v = butterfly<3>(d, hn::ConcatLowerUpper(d, v, v), v);
#endif
        hn::StoreU(v, d, x + i);
    }
    for (uint32_t distance = lanes; distance < run; distance *= 2) {
        for (uint32_t block = 0; block < run; block += 2 * distance) {
            for (uint32_t i = block; i < block + distance; i += lanes) {
                const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + distance);
                hn::StoreU(hn::Add(a, b), d, x + i);
                hn::StoreU(hn::Sub(a, b), d, x + i + distance);
            }
        }
    }
}

HWY_ATTR void rotate(float* x, uint32_t dim) {
    const uint32_t run = dim & (~dim + 1);
    const float scale = 1 / std::sqrt(static_cast<float>(run));
    for (uint32_t at = 0; at < dim; at += run) {
        if (run >= 16)
            transform(hn::CappedTag<float, 16>(), x + at, run, scale);
        else
            transform(hn::CappedTag<float, 8>(), x + at, run, scale);
    }
}

}  // namespace granary::gpu::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace granary::gpu::host {

HWY_EXPORT(decode_int8_rows);
HWY_EXPORT(decode_int4_rows);
HWY_EXPORT(encode);
HWY_EXPORT(rotate);

void rotate_head(float* x, uint32_t dim) {
    HWY_DYNAMIC_DISPATCH(rotate)(x, dim);
}
void encode_head(KvCodes codes, const float* x, uint32_t dim, std::byte* to, std::byte* scales) {
    HWY_DYNAMIC_DISPATCH(encode)(codes, x, dim, to, scales);
}
void decode_rows(KvCodes codes, const CodeRows& from, uint32_t dim, float* to, size_t stride) {
    if (codes == KvCodes::int8)
        HWY_DYNAMIC_DISPATCH(decode_int8_rows)(from, dim, to, stride);
    else
        HWY_DYNAMIC_DISPATCH(decode_int4_rows)(from, dim, to, stride);
}

}  // namespace granary::gpu::host
#endif

// SPDX-License-Identifier: GPL-3.0-or-later
// Rotary positions (gpu/rope_table.h). Angles are reduced in double: at 1,000,000 cells an f32
// angle would be off by 0.06.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/host/rope.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// After foreach_target.h: compiled for each target.
#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "gpu/host/host_kernels.h"
#include "gpu/host/kv_cells.h"
#include "gpu/host/rows.h"

HWY_BEFORE_NAMESPACE();
namespace granary::gpu::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Cosines and sines of angles in [-pi, pi], times `magnitude`; count is a multiple of 16.
HWY_ATTR void cosine_sine(const float* angle, size_t count, float magnitude, float* cosine,
                          float* sine) {
    const hn::CappedTag<float, 16> d;
    const auto size = hn::Set(d, magnitude);
    for (size_t i = 0; i < count; i += hn::Lanes(d)) {
        const auto a = hn::LoadU(d, angle + i);
        hn::StoreU(hn::Mul(size, hn::Cos(d, a)), d, cosine + i);
        hn::StoreU(hn::Mul(size, hn::Sin(d, a)), d, sine + i);
    }
}

// Turns `pairs` pairs (x[i], x[i + pairs]).
HWY_ATTR void rotate(float* x, size_t pairs, const float* cosine, const float* sine) {
    const hn::CappedTag<float, 16> d;
    const size_t lanes = hn::Lanes(d), whole = pairs / lanes * lanes;
    for (size_t i = 0; i < whole; i += lanes) {
        const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + pairs + i);
        const auto c = hn::LoadU(d, cosine + i), s = hn::LoadU(d, sine + i);
        hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, x + i);
        hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), d, x + pairs + i);
    }
    for (size_t i = whole; i < pairs; ++i) {
        const float a = x[i], b = x[pairs + i];
        x[i] = a * cosine[i] - b * sine[i];
        x[pairs + i] = b * cosine[i] + a * sine[i];
    }
}

}  // namespace granary::gpu::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace granary::gpu::host {

HWY_EXPORT(cosine_sine);
HWY_EXPORT(rotate);

// Work: 10 operations a value. Bytes: 4 read and 4 (q), 0.6 to 4 (k, v) written.
void HostKernels::rope_store_of_pairs(const AttentionShape& shape, const float* q_norm,
                                      const float* k_norm, uint32_t first_cell, uint32_t n,
                                      const float* pairs, float* q, const float* k, const float* v,
                                      const KvView& kv) {
    const size_t dim = shape.head_dim, width = shape.heads * dim;
    for_rows(n, width, [&](uint32_t row) {
        for (size_t h = 0; h < shape.heads; ++h)
            std::copy_n(pairs + row * 2 * width + h * 2 * dim, dim, q + row * width + h * dim);
    });
    rope_store(shape, q_norm, k_norm, first_cell, n, q, k, v, kv);
}

void HostKernels::rope_store(const AttentionShape& shape, const float* q_norm, const float* k_norm,
                             uint32_t first_cell, uint32_t n, float* q, const float* k,
                             const float* v, const KvView& view) {
    KvView kv = view;
    if (view.place) {
        kv.base = view.place->kv + view.offset;
        first_cell = view.place->first_cell;
    }
    const RopeTable still;
    const RopeTable& rope = shape.rope ? *shape.rope : still;
    const size_t pairs = rope.pairs(), padded = (pairs + 15) / 16 * 16;
    require_scratch(shape.head_dim, 0);

    const auto tokens = [&](unsigned worker, size_t begin, size_t end) {
        // 3 * padded + head_dim floats: a worker's part holds 64 times that.
        float* angle = scratch_of(worker, shape.head_dim);
        float* cosine = angle + padded;
        float* sine = cosine + padded;
        float* head = sine + padded;
        std::fill(angle + pairs, angle + padded, 0.0f);
        for (size_t i = begin; i < end; ++i) {
            const auto cell = first_cell + static_cast<uint32_t>(i);
            for (size_t j = 0; j < pairs; ++j) {
                const double turn = rope.turns[j] * cell;
                angle[j] = static_cast<float>((turn - std::nearbyint(turn)) * 2 * std::numbers::pi);
            }
            HWY_DYNAMIC_DISPATCH(cosine_sine)(angle, padded, rope.magnitude, cosine, sine);
            for (uint32_t h = 0; h < shape.heads; ++h) {
                float* x = q + (i * shape.heads + h) * shape.head_dim;
                if (q_norm) rms_norm_row(x, q_norm, shape.norm_eps, shape.head_dim, x);
                HWY_DYNAMIC_DISPATCH(rotate)(x, pairs, cosine, sine);
                if (kv.k.rotated()) rotate_head(x, shape.head_dim);
            }
            for (uint32_t h = 0; h < shape.kv_heads; ++h) {
                const size_t at = (i * shape.kv_heads + h) * shape.head_dim;
                if (k_norm)
                    rms_norm_row(k + at, k_norm, shape.norm_eps, shape.head_dim, head);
                else
                    std::copy_n(k + at, shape.head_dim, head);
                HWY_DYNAMIC_DISPATCH(rotate)(head, pairs, cosine, sine);
                if (kv.k.rotated()) rotate_head(head, shape.head_dim);
                store_head(kv, kv.k, cell, h, shape.head_dim, head);
                const float* value = v + at;
                if (kv.v.rotated()) {
                    std::copy_n(value, shape.head_dim, head);
                    rotate_head(head, shape.head_dim);
                    value = head;
                }
                store_head(kv, kv.v, cell, h, shape.head_dim, value);
            }
        }
    };
    if (size_t{n} * shape.heads * shape.head_dim <= kInline) return tokens(0, 0, n);
    pool_.run([&](unsigned worker) {
        const Share part = share(n, 1, worker, pool_.threads());
        tokens(worker, part.begin, part.end);
    });
}

}  // namespace granary::gpu::host
#endif

// SPDX-License-Identifier: GPL-3.0-or-later
// Attention of generated tokens: each 512 cells give a partial result, and the partial results
// are added in the order of the cells (Flash-Decoding; the same softmax identity as in
// attention_prompt.cpp). The cuts lie at absolute multiples of 512, so that neither threads nor the
// number of tokens in a call change a bit.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/host/attention_decode.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// After foreach_target.h: compiled for each target.
#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gpu/host/attention.h"
#include "gpu/host/codes.h"
#include "gpu/host/host_kernels.h"
#include "gpu/host/kv_cells.h"
#include "gpu/host/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace granary::gpu::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR
// The sums of the lanes of four vectors, in four lanes.
template <class D, class V>
HWY_ATTR HWY_INLINE hn::Vec<hn::Full128<float>> four_sums(D d, V a, V b, V c, V e) {
    const hn::Repartition<double, D> dd;
    const auto pair = [&](V x, V y) HWY_ATTR {
        return hn::Add(hn::InterleaveLower(d, x, y), hn::InterleaveUpper(d, x, y));
    };
    const auto ab = hn::BitCast(dd, pair(a, b)), ce = hn::BitCast(dd, pair(c, e));
    const V sums = hn::Add(hn::BitCast(d, hn::InterleaveLower(dd, ab, ce)),
                           hn::BitCast(d, hn::InterleaveUpper(dd, ab, ce)));
    if constexpr (hn::MaxLanes(D()) == 4) {
        return sums;
    } else {
        const hn::Half<D> half;
        const auto halves = hn::Add(hn::LowerHalf(half, sums), hn::UpperHalf(half, sums));
        if constexpr (hn::MaxLanes(D()) == 8) {
            return halves;
        } else {
            const hn::Half<hn::Half<D>> quarter;
            return hn::Add(hn::LowerHalf(quarter, halves), hn::UpperHalf(quarter, halves));
        }
    }
}

// scores[h][c] = query h . cell c for four heads and a tile of cells.
HWY_ATTR void score_four(const float* query, const float* keys, uint32_t width, uint32_t cells,
                         float* scores) {
    const hn::CappedTag<float, 16> d;
    const hn::Full128<float> d4;
    const auto lanes = static_cast<uint32_t>(hn::Lanes(d));
    for (uint32_t c = 0; c < cells; ++c) {
        const float* key = keys + size_t{c} * width;
        auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
        for (uint32_t j = 0; j < width; j += lanes) {
            const auto k = hn::Load(d, key + j);
            s0 = hn::MulAdd(hn::Load(d, query + j), k, s0);
            s1 = hn::MulAdd(hn::Load(d, query + width + j), k, s1);
            s2 = hn::MulAdd(hn::Load(d, query + 2 * width + j), k, s2);
            s3 = hn::MulAdd(hn::Load(d, query + 3 * width + j), k, s3);
        }
        alignas(16) float four[4];
        hn::Store(four_sums(d, s0, s1, s2, s3), d4, four);
        for (uint32_t i = 0; i < 4; ++i) scores[i * kSplitCells + c] = four[i];
    }
}
#endif

// The same for any number of heads.
HWY_ATTR void score(const DecodeBlock& block, uint32_t heads, uint32_t width, uint32_t cells,
                    float* scores) {
    const hn::CappedTag<float, 16> d;
    const auto lanes = static_cast<uint32_t>(hn::Lanes(d));
    uint32_t h = 0;
#if HWY_TARGET != HWY_SCALAR
    for (; h + 4 <= heads; h += 4)
        score_four(block.queries + size_t{h} * width, block.cells, width, cells,
                   scores + h * kSplitCells);
#endif
    for (; h < heads; ++h) {
        const float* query = block.queries + size_t{h} * width;
        for (uint32_t c = 0; c < cells; ++c) {
            const float* key = block.cells + size_t{c} * width;
            auto sum = hn::Zero(d);
            for (uint32_t j = 0; j < width; j += lanes)
                sum = hn::MulAdd(hn::Load(d, query + j), hn::Load(d, key + j), sum);
            scores[h * kSplitCells + c] = hn::GetLane(hn::SumOfLanes(d, sum));
        }
    }
}

// Turns a head's scores into weights exp(score - maximum); returns their sum. `scores` has room
// for a whole number of vectors.
HWY_ATTR float weigh(float* scores, uint32_t cells, float* maximum) {
    const hn::CappedTag<float, 16> d;
    const auto lanes = static_cast<uint32_t>(hn::Lanes(d));
    while (cells % lanes) scores[cells++] = kLowest;
    auto largest = hn::Set(d, kLowest);
    for (uint32_t c = 0; c < cells; c += lanes) largest = hn::Max(largest, hn::Load(d, scores + c));
    *maximum = hn::GetLane(hn::MaxOfLanes(d, largest));
    const auto limit = hn::Set(d, *maximum);
    auto sum = hn::Zero(d);
    for (uint32_t c = 0; c < cells; c += lanes) {
        const auto weight = hn::Exp(d, hn::Sub(hn::Load(d, scores + c), limit));
        hn::Store(weight, d, scores + c);
        sum = hn::Add(sum, weight);
    }
    return hn::GetLane(hn::SumOfLanes(d, sum));
}

// out[h] += sum over the tile's cells of weight[h][c] * cell c.
template <uint32_t kHeads, uint32_t kVectors>
HWY_ATTR HWY_INLINE void add_cells_block(const float* cells, uint32_t width, uint32_t count,
                                         const float* weights, float* out, size_t out_stride) {
    const hn::CappedTag<float, 16> d;
    using V = hn::Vec<decltype(d)>;
    const size_t lanes = hn::Lanes(d);
    V sum[kHeads][kVectors];
    GRANARY_UNROLL
    for (uint32_t h = 0; h < kHeads; ++h) GRANARY_UNROLL
    for (uint32_t v = 0; v < kVectors; ++v)
        sum[h][v] = hn::Load(d, out + h * out_stride + v * lanes);
    for (uint32_t c = 0; c < count; ++c) {
        V x[kVectors];
        GRANARY_UNROLL
        for (uint32_t v = 0; v < kVectors; ++v)
            x[v] = hn::Load(d, cells + size_t{c} * width + v * lanes);
        GRANARY_UNROLL
        for (uint32_t h = 0; h < kHeads; ++h) {
            const V w = hn::Set(d, weights[h * kSplitCells + c]);
            GRANARY_UNROLL
            for (uint32_t v = 0; v < kVectors; ++v) sum[h][v] = hn::MulAdd(w, x[v], sum[h][v]);
        }
    }
    GRANARY_UNROLL
    for (uint32_t h = 0; h < kHeads; ++h) GRANARY_UNROLL
    for (uint32_t v = 0; v < kVectors; ++v)
        hn::Store(sum[h][v], d, out + h * out_stride + v * lanes);
}

HWY_ATTR void add_cells(const DecodeBlock& block, uint32_t heads, uint32_t width, uint32_t count,
                        const float* weights, float* out, size_t out_stride) {
    const hn::CappedTag<float, 16> d;
    const auto lanes = static_cast<uint32_t>(hn::Lanes(d));
    for (uint32_t h = 0; h < heads;) {
        const uint32_t together = heads - h >= 4 ? 4 : 1;
        for (uint32_t j = 0; j < width;) {
            const float* cells = block.cells + j;
            const float* weight = weights + h * kSplitCells;
            float* to = out + h * out_stride + j;
            const bool wide = width - j >= 2 * lanes;
            if (together == 4 && wide)
                add_cells_block<4, 2>(cells, width, count, weight, to, out_stride);
            else if (together == 4)
                add_cells_block<4, 1>(cells, width, count, weight, to, out_stride);
            else if (wide)
                add_cells_block<1, 2>(cells, width, count, weight, to, out_stride);
            else
                add_cells_block<1, 1>(cells, width, count, weight, to, out_stride);
            j += wide ? 2 * lanes : lanes;
        }
        h += together;
    }
}

}  // namespace granary::gpu::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace granary::gpu::host {

HWY_EXPORT(score);
HWY_EXPORT(weigh);
HWY_EXPORT(add_cells);

namespace {

// Cells [first, first + count) of one split for `heads` query heads of one K/V head.
void attend_split(const DecodeBlock& block, const KvView& kv, uint32_t kv_head, uint32_t heads,
                  uint32_t dim, uint32_t first, uint32_t count, float* partial,
                  size_t partial_stride) {
    const uint32_t width = padded_dim(dim);
    for (uint32_t at = 0; at < count; at += kTileCells) {
        const uint32_t cells = std::min(kTileCells, count - at);
        load_cells(kv, kv.k, kv_head, dim, first + at, cells, cells, block.cells);
        HWY_DYNAMIC_DISPATCH(score)(block, heads, width, cells, block.scores + at);
    }
    for (uint32_t h = 0; h < heads; ++h) {
        float* to = partial + h * partial_stride;
        std::fill_n(to, width, 0.0f);
        to[width + 1] =
            HWY_DYNAMIC_DISPATCH(weigh)(block.scores + h * kSplitCells, count, to + width);
    }
    for (uint32_t at = 0; at < count; at += kTileCells) {
        const uint32_t cells = std::min(kTileCells, count - at);
        load_cells(kv, kv.v, kv_head, dim, first + at, cells, cells, block.cells);
        HWY_DYNAMIC_DISPATCH(add_cells)
        (block, heads, width, cells, block.scores + at, partial, partial_stride);
    }
}

}  // namespace

// Work: 4 heads head_dim operations a token and cell. Bytes: K and V once per kDecodeHeads heads.
void HostKernels::attention_decode(const AttentionShape& shape, const float* q, const KvView& view,
                                   const Activations& out) {
    KvView kv = view;
    kv.base = view.place->kv + view.offset;
    const uint32_t first_cell = view.place->first_cell;
    const uint32_t group = shape.heads / shape.kv_heads, dim = shape.head_dim;
    const uint32_t width = padded_dim(dim);
    const uint32_t head_parts = (group + kDecodeHeads - 1) / kDecodeHeads;
    const uint32_t longest = first_cell + out.rows;  // cells that the last token sees
    const uint32_t splits = (longest + kSplitCells - 1) / kSplitCells;
    const size_t stride = partial_floats(dim);  // of splits; a head's splits lie together
    const size_t head_stride = stride * splits;
    float* partials = require_scratch(dim, size_t{out.rows} * shape.heads * head_stride);
    const size_t tasks = size_t{out.rows} * splits * shape.kv_heads * head_parts;

    const auto attend_tasks = [&](unsigned worker, auto&& claim) {
        const DecodeBlock block = decode_block(scratch_of(worker, dim), dim);
        for (size_t task; (task = claim()) < tasks;) {
            size_t rest = task;
            const auto take = [&](uint32_t count) {
                const auto value = static_cast<uint32_t>(rest % count);
                rest /= count;
                return value;
            };
            const uint32_t head_part = take(head_parts), kv_head = take(shape.kv_heads);
            const uint32_t split = take(splits);
            const auto token = static_cast<uint32_t>(rest);
            const uint32_t first = split * kSplitCells, end = first_cell + token + 1;
            if (first >= end) continue;
            const uint32_t head = kv_head * group + head_part * kDecodeHeads;
            const uint32_t heads = std::min(kDecodeHeads, group - head_part * kDecodeHeads);
            for (uint32_t h = 0; h < heads; ++h) {
                const float* from = q + (size_t{token} * shape.heads + head + h) * dim;
                float* to = block.queries + size_t{h} * width;
                for (uint32_t j = 0; j < width; ++j) to[j] = j < dim ? from[j] * shape.scale : 0;
            }
            attend_split(
                block, kv, kv_head, heads, dim, first, std::min(kSplitCells, end - first),
                partials + (size_t{token} * shape.heads + head) * head_stride + split * stride,
                head_stride);
        }
    };
    // Adds the splits of heads [begin, end), counted over all tokens.
    const auto combine_heads = [&](size_t begin, size_t end) {
        for (size_t row = begin; row < end; ++row) {
            const auto token = static_cast<uint32_t>(row / shape.heads);
            const uint32_t used = (first_cell + token) / kSplitCells + 1;
            const float* partial = partials + row * head_stride;
            float maximum = kLowest;
            for (uint32_t s = 0; s < used; ++s)
                maximum = std::max(maximum, partial[s * stride + width]);
            float* to = out.values + row * dim;
            std::fill_n(to, dim, 0.0f);
            float sum = 0;
            for (uint32_t s = 0; s < used; ++s) {
                const float* from = partial + s * stride;
                const float factor = std::exp(from[width] - maximum);
                sum += factor * from[width + 1];
                add_scaled(to, from, factor, dim);
            }
            for (uint32_t j = 0; j < dim; ++j) to[j] /= sum;
            if (kv.v.rotated()) rotate_head(to, dim);
        }
    };

    const size_t heads = size_t{out.rows} * shape.heads;
    if (heads * longest <= kInline / 8) {  // too little to share
        size_t next = 0;
        attend_tasks(0, [&] { return next++; });
        combine_heads(0, heads);
    } else {
        pool_.run([&](unsigned worker) {
            attend_tasks(worker, [&] { return pool_.next(); });
            pool_.barrier();
            const Share part = share(heads, 1, worker, pool_.threads());
            combine_heads(part.begin, part.end);
        });
    }
    quantise(out);
}

}  // namespace granary::gpu::host
#endif

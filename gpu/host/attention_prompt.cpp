// SPDX-License-Identifier: GPL-3.0-or-later
// Attention of prompt tokens: online softmax over tiles of 64 cells (Dao et al. 2022, with the
// running maximum of Milakov and Gimelshein 2018).
//
// A query row (one token, one head) is one vector lane, so rows never mix: scores, maximum, sum
// and output of a row are the same whatever stands in the other lanes. K and V values are
// broadcast, and nothing is transposed but the queries, once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/host/attention_prompt.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// After foreach_target.h: compiled for each target.
#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "gpu/host/attention.h"
#include "gpu/host/codes.h"
#include "gpu/host/host_kernels.h"
#include "gpu/host/kv_cells.h"
#include "gpu/host/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace granary::gpu::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Broadcast values that share a load of vectors: bounded by the registers.
#if HWY_TARGET == HWY_AVX3
inline constexpr uint32_t kTogether = 4;
#else
inline constexpr uint32_t kTogether = 2;
#endif

// out[j][lanes] = (scaled old out[j]) + sum over k < depth of factor[j * stride_j + k * stride_k]
// * in[k][lanes], for kTogether values of j and kVectors vectors of lanes.
template <uint32_t kVectors>
HWY_ATTR HWY_INLINE void accumulate(const float* factor, size_t stride_j, size_t stride_k,
                                    const float* in, uint32_t depth, const float* scale,
                                    float* out) {
    const hn::CappedTag<float, 16> d;
    using V = hn::Vec<decltype(d)>;
    const size_t lanes = hn::Lanes(d);
    V sum[kTogether][kVectors];
    GRANARY_UNROLL
    for (uint32_t j = 0; j < kTogether; ++j) GRANARY_UNROLL
    for (uint32_t v = 0; v < kVectors; ++v)
        sum[j][v] = scale ? hn::Mul(hn::Load(d, scale + v * lanes),
                                    hn::Load(d, out + j * kLanes + v * lanes))
                          : hn::Zero(d);
    for (uint32_t k = 0; k < depth; ++k) {
        V x[kVectors];
        GRANARY_UNROLL
        for (uint32_t v = 0; v < kVectors; ++v) x[v] = hn::Load(d, in + k * kLanes + v * lanes);
        GRANARY_UNROLL
        for (uint32_t j = 0; j < kTogether; ++j) {
            const V f = hn::Set(d, factor[j * stride_j + k * stride_k]);
            GRANARY_UNROLL
            for (uint32_t v = 0; v < kVectors; ++v) sum[j][v] = hn::MulAdd(f, x[v], sum[j][v]);
        }
    }
    GRANARY_UNROLL
    for (uint32_t j = 0; j < kTogether; ++j) GRANARY_UNROLL
    for (uint32_t v = 0; v < kVectors; ++v) hn::Store(sum[j][v], d, out + j * kLanes + v * lanes);
}

// One tile for kVectors vectors of rows.
template <uint32_t kVectors>
HWY_ATTR void tile_step(const PromptBlock& block, uint32_t first, uint32_t cells) {
    const hn::CappedTag<float, 16> d;
    const size_t lanes = hn::Lanes(d);
    const uint32_t width = padded_dim(block.head_dim);
    const uint32_t rounded = (cells + 3) / 4 * 4;
    for (uint32_t c = 0; c < rounded; c += kTogether)
        accumulate<kVectors>(block.keys + size_t{c} * width, width, 1, block.queries,
                             block.head_dim, nullptr, block.scores + c * kLanes);

    // Cells after a row's own do not count: their scores become the lowest number.
    const auto lowest = hn::Set(d, kLowest);
    GRANARY_UNROLL
    for (uint32_t v = 0; v < kVectors; ++v) {
        const auto limit = hn::Load(d, block.limits + v * lanes);
        const auto old_maximum = hn::Load(d, block.maximum + v * lanes);
        auto maximum = old_maximum;
        for (uint32_t c = 0; c < rounded; ++c) {
            float* at = block.scores + c * kLanes + v * lanes;
            const auto cell =
                hn::Set(d, static_cast<float>(static_cast<int32_t>(first + c - block.first_limit)));
            const auto score = hn::IfThenElse(hn::Le(cell, limit), hn::Load(d, at), lowest);
            hn::Store(score, d, at);
            maximum = hn::Max(maximum, score);
        }
        const auto factor = hn::Exp(d, hn::Sub(old_maximum, maximum));
        auto sum = hn::Mul(hn::Load(d, block.sum + v * lanes), factor);
        for (uint32_t c = 0; c < rounded; ++c) {
            float* at = block.scores + c * kLanes + v * lanes;
            const auto weight = hn::Exp(d, hn::Sub(hn::Load(d, at), maximum));
            hn::Store(weight, d, at);
            sum = hn::Add(sum, weight);
        }
        hn::Store(maximum, d, block.maximum + v * lanes);
        hn::Store(sum, d, block.sum + v * lanes);
        hn::Store(factor, d, block.factor + v * lanes);
    }

    for (uint32_t j = 0; j < block.head_dim; j += kTogether)
        accumulate<kVectors>(block.values + j, 1, width, block.scores, rounded, block.factor,
                             block.out + j * kLanes);
}

HWY_ATTR void attend(const PromptBlock& block, uint32_t rows, uint32_t first, uint32_t cells) {
    const hn::CappedTag<float, 16> d;
    const auto lanes = static_cast<uint32_t>(hn::Lanes(d));
    for (uint32_t at = 0; at < rows;) {
        PromptBlock part = block;
        part.queries += at;
        part.scores += at;
        part.out += at;
        part.limits += at;
        part.maximum += at;
        part.sum += at;
        part.factor += at;
        const uint32_t vectors = (rows - at + lanes - 1) / lanes;
        if (vectors >= 4) {
            tile_step<4>(part, first, cells);
            at += 4 * lanes;
        } else if (vectors >= 2) {
            tile_step<2>(part, first, cells);
            at += 2 * lanes;
        } else {
            tile_step<1>(part, first, cells);
            at += lanes;
        }
    }
}

}  // namespace granary::gpu::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace granary::gpu::host {

HWY_EXPORT(attend);

// Work: 4 heads head_dim operations a token and cell. Bytes: K and V once per kLanes query rows.
// A task is one K/V head and up to kLanes query rows; the last tasks, which see the most cells, go
// first.
void HostKernels::attention_prompt(const AttentionShape& shape, const float* q, uint32_t first_cell,
                                   const KvView& kv, const Activations& out) {
    const uint32_t group = shape.heads / shape.kv_heads, dim = shape.head_dim;
    const uint32_t heads = std::min(group, kLanes);  // of one task
    const uint32_t head_parts = (group + heads - 1) / heads;
    const uint32_t tokens = kLanes / heads;
    const uint32_t blocks = (out.rows + tokens - 1) / tokens;
    const size_t tasks = size_t{blocks} * shape.kv_heads * head_parts;

    require_scratch(dim, 0);
    std::atomic<bool> stopped = false;
    pool_.run([&](unsigned worker) {
        const PromptBlock block = prompt_block(scratch_of(worker, dim), dim);
        for (size_t task; !stopped && (task = pool_.next()) < tasks;) {
            if (worker == 0 && !wanted()) stopped = true;  // the caller's thread
            const auto token_block =
                blocks - 1 - static_cast<uint32_t>(task / (shape.kv_heads * head_parts));
            const auto rest = static_cast<uint32_t>(task % (shape.kv_heads * head_parts));
            const uint32_t kv_head = rest / head_parts, head_part = rest % head_parts;
            const uint32_t first_token = token_block * tokens;
            const uint32_t count = std::min(tokens, out.rows - first_token);
            const uint32_t first_head = kv_head * group + head_part * heads;
            const uint32_t used = std::min(heads, group - head_part * heads);
            const uint32_t rows = count * used;

            PromptBlock b = block;
            b.first_limit = first_cell + first_token;
            for (uint32_t r = 0; r < kLanes; ++r) {
                const bool real = r < rows;
                const uint32_t token = first_token + (real ? r / used : 0);
                const float* from = q + (size_t{token} * shape.heads + first_head + r % used) * dim;
                for (uint32_t j = 0; j < dim; ++j)
                    b.queries[j * kLanes + r] = real ? from[j] * shape.scale : 0;
                b.limits[r] = real ? static_cast<float>(r / used) : 0;
            }
            std::fill_n(b.maximum, kLanes, kLowest);
            std::fill_n(b.sum, kLanes, 0.0f);
            std::fill_n(b.out, size_t{padded_dim(dim)} * kLanes, 0.0f);

            const uint32_t end = b.first_limit + count;  // cells that the last row sees
            for (uint32_t first = 0; first < end; first += kTileCells) {
                const uint32_t cells = std::min(kTileCells, end - first);
                const uint32_t rounded = (cells + 3) / 4 * 4;
                load_cells(kv, kv.k, kv_head, dim, first, cells, rounded, b.keys);
                load_cells(kv, kv.v, kv_head, dim, first, cells, rounded, b.values);
                HWY_DYNAMIC_DISPATCH(attend)(b, rows, first, cells);
            }
            for (uint32_t r = 0; r < rows; ++r) {
                float* to =
                    out.values +
                    (size_t{first_token + r / used} * shape.heads + first_head + r % used) * dim;
                const float factor = 1 / b.sum[r];
                for (uint32_t j = 0; j < dim; ++j) to[j] = b.out[j * kLanes + r] * factor;
                if (kv.v.rotated()) rotate_head(to, dim);
            }
        }
    });
    quantise(out);
}

}  // namespace granary::gpu::host
#endif

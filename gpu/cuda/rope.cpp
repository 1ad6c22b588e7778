// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/cuda/rope.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numbers>

#include "gpu/cuda/kernels.h"

namespace granary::gpu::cuda {

Result<void> CudaKernels::load_rope() {
    return find("rope", {{"rope_store", &rope_store_}});
}

void CudaKernels::rope_store(const AttentionShape& shape, const float* q_norm, const float* k_norm,
                             uint32_t first_cell, uint32_t n, float* q, const float* k,
                             const float* v, const KvView& kv) {
    const uint32_t pairs = shape.rope_dims / 2;
    if (pairs > kMostRopePairs) {
        std::fprintf(stderr, "%u values of a head rotate, %u are the most\n", shape.rope_dims,
                     2 * kMostRopePairs);
        std::abort();
    }
    if (rope_.dims != shape.rope_dims || rope_.base != shape.rope_base ||
        rope_.scale != shape.rope_scale) {
        rope_.dims = shape.rope_dims;
        rope_.base = shape.rope_base;
        rope_.scale = shape.rope_scale;
        for (uint32_t i = 0; i < pairs; ++i)
            rope_.turns.turns[i] = shape.rope_scale / (2 * std::numbers::pi) *
                                   std::pow(static_cast<double>(shape.rope_base),
                                            -static_cast<double>(2 * i) / shape.rope_dims);
    }
    const uint32_t heads = shape.heads + 2 * shape.kv_heads, dim = shape.head_dim;
    const auto shared = static_cast<unsigned>((2 * pairs + kRopeWarps * dim) * sizeof(float));
    constexpr uint32_t kMostRows = 65535;
    for (uint32_t first = 0; first < n; first += kMostRows) {
        const size_t q_at = size_t{first} * shape.heads * dim;
        const size_t k_at = size_t{first} * shape.kv_heads * dim;
        const Size3 grid{(heads + kRopeWarps - 1) / kRopeWarps, std::min(n - first, kMostRows)};
        const RopeStore job{q_norm,   k_norm, q + q_at,           k + k_at,
                            v + k_at, kv,     shape.heads,        shape.kv_heads,
                            dim,      pairs,  first_cell + first, shape.norm_eps};
        if (kv.place)
            queue_early(rope_store_, grid, {32 * kRopeWarps}, shared, job, rope_.turns);
        else
            queue(rope_store_, grid, {32 * kRopeWarps}, shared, job, rope_.turns);
    }
}

}  // namespace granary::gpu::cuda

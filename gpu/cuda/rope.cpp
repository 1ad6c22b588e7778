// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/cuda/rope.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "gpu/cuda/kernels.h"

namespace granary::gpu::cuda {

RopeTurns rope_turns(const AttentionShape& shape) {
    RopeTurns turns{};
    if (!shape.rope) return turns;
    if (shape.rope->pairs() > kMostRopePairs) {
        std::fprintf(stderr, "%u values of a head rotate, %u are the most\n",
                     2 * shape.rope->pairs(), 2 * kMostRopePairs);
        std::abort();
    }
    std::copy(shape.rope->turns.begin(), shape.rope->turns.end(), turns.turns);
    turns.magnitude = shape.rope->magnitude;
    return turns;
}

Result<void> CudaKernels::load_rope() {
    return find("rope", {{"rope_store", &rope_store_}});
}

void CudaKernels::rope_store(const AttentionShape& shape, const float* q_norm, const float* k_norm,
                             uint32_t first_cell, uint32_t n, float* q, const float* k,
                             const float* v, const KvView& kv) {
    rope_store_from(q, shape.head_dim, shape, q_norm, k_norm, first_cell, n, q, k, v, kv);
}

void CudaKernels::rope_store_of_pairs(const AttentionShape& shape, const float* q_norm,
                                      const float* k_norm, uint32_t first_cell, uint32_t n,
                                      const float* pairs, float* q, const float* k, const float* v,
                                      const KvView& kv) {
    rope_store_from(pairs, 2 * shape.head_dim, shape, q_norm, k_norm, first_cell, n, q, k, v, kv);
}

void CudaKernels::rope_store_from(const float* from, uint32_t stride, const AttentionShape& shape,
                                  const float* q_norm, const float* k_norm, uint32_t first_cell,
                                  uint32_t n, float* q, const float* k, const float* v,
                                  const KvView& kv) {
    const uint32_t pairs = shape.rope ? shape.rope->pairs() : 0;
    const RopeTurns turns = rope_turns(shape);
    const uint32_t heads = shape.heads + 2 * shape.kv_heads, dim = shape.head_dim;
    const auto shared = static_cast<unsigned>((2 * pairs + kRopeWarps * dim) * sizeof(float));
    constexpr uint32_t kMostRows = 65535;
    for (uint32_t first = 0; first < n; first += kMostRows) {
        const size_t q_at = size_t{first} * shape.heads * dim;
        const size_t k_at = size_t{first} * shape.kv_heads * dim;
        const Size3 grid{(heads + kRopeWarps - 1) / kRopeWarps, std::min(n - first, kMostRows)};
        const size_t from_at = size_t{first} * shape.heads * stride;
        const RopeStore job{q_norm,
                            k_norm,
                            from + from_at,
                            stride,
                            q + q_at,
                            k + k_at,
                            v + k_at,
                            kv,
                            shape.heads,
                            shape.kv_heads,
                            dim,
                            pairs,
                            first_cell + first,
                            shape.norm_eps};
        if (kv.place)
            queue_early(rope_store_, grid, {32 * kRopeWarps}, shared, job, turns);
        else
            queue(rope_store_, grid, {32 * kRopeWarps}, shared, job, turns);
    }
}

}  // namespace granary::gpu::cuda

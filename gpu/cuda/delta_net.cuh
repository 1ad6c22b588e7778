// SPDX-License-Identifier: GPL-3.0-or-later
// Where chunks and heads lie, for all kernels of delta nets.
#pragma once

#include "gpu/cuda/delta_net.h"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kCells = kDeltaCells;

// Rows [first, first + count) of a chunk.
struct Chunk {
    uint32_t first, count;
};
__device__ __forceinline__ Chunk chunk_of(const DeltaNet& job, uint32_t number) {
    const uint32_t first = job.first + (number == 0 ? 0 : job.first_rows + (number - 1) * kCells);
    return {first, min(number == 0 ? job.first_rows : kCells, job.n - first)};
}

// Where q, k and v of a value head begin in a row of channels.
struct Head {
    size_t channels, q, k, v;
};
__device__ __forceinline__ Head head_of(const DeltaNet& job, uint32_t head) {
    const uint32_t key = head % job.key_heads;
    return {size_t{2 * job.key_heads + job.value_heads} * job.dim, size_t{key} * job.dim,
            size_t{job.key_heads + key} * job.dim, size_t{2 * job.key_heads + head} * job.dim};
}

}  // namespace
}  // namespace granary::gpu::cuda

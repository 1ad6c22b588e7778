// SPDX-License-Identifier: GPL-3.0-or-later
// Arguments of the kernel that rotates q and k and stores k and v, as host and device see them.
#pragma once

#include <cstdint>

#include "gpu/kernels.h"

namespace granary::gpu::cuda {

inline constexpr uint32_t kMostRopePairs = 256;  // heads have at most 512 values
inline constexpr uint32_t kRopeWarps = 8;        // of a block, a head each

// RopeTable as an argument.
struct RopeTurns {
    double turns[kMostRopePairs];
    float magnitude;
};

// Of a shape that may have none.
RopeTurns rope_turns(const AttentionShape& shape);

struct RopeStore {
    const float* q_norm;  // [dim]; null: none
    const float* k_norm;
    const float* q_from;  // row i of a head at i q_stride
    uint32_t q_stride;
    float* q;        // [n, heads, dim]
    const float* k;  // [n, kv_heads, dim]
    const float* v;
    KvView kv;
    uint32_t heads, kv_heads, dim, pairs;
    uint32_t first_cell;  // unless kv.place tells
    float eps;
};

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Arguments of the delta-net kernels, as host and device see them.
//
// A prompt is taken in chunks that end at absolute multiples of kDeltaCells. With G_i the sum of
// the logarithms of decay in a chunk up to token i and S the state before it, what tokens write
// solves a triangular system, d_i + beta_i sum over j < i of exp(G_i - G_j) (k_i . k_j) d_j =
// beta_i (v_i - exp(G_i) S^T k_i). All of it but S is known at once: delta_net_prepare solves for
// the two right sides, U from beta_i v_i and W from beta_i exp(G_i) k_i, for many chunks side by
// side, and delta_net_chunk takes the chunks in order with d = U - W S (the WY form of Yang et al.
// 2024, arXiv 2412.06464).
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/cuda/ordered_rows.h"
#include "gpu/kernels.h"

namespace granary::gpu::cuda {

struct DeltaNet {
    float* x;      // [n, channels]
    float* alpha;  // [n, value_heads] logarithms of decay
    float* beta;   // [n, value_heads]
    float* state;  // [value_heads, dim k, dim v]
    float* out;    // [n, value_heads, dim]
    // [chunks, value_heads] of delta_prepared_floats; tensor cores need none of it.
    float* prepared;
    uint32_t key_heads, value_heads, dim;
    float norm_eps;
    uint32_t n;
    uint32_t first;       // row of the first chunk of this launch
    uint32_t first_rows;  // that it has at most: up to a multiple of kDeltaCells
    uint32_t chunks;      // of this launch
    // Where the short convolution is done on the way: what it takes, x then being room for what
    // comes out; else null.
    const float* channels;  // [n, channels]
    const float* kernel;    // [channels, kDeltaTaps]
    float* tail;            // [kDeltaTaps - 1, channels]
};

// out = rms_norm(x) * weight * silu(gate) of what a delta net of generated tokens puts out.
struct DeltaNorm {
    const float* weight;  // [dim]
    float eps;
    const float* gate;  // [n, value_heads, dim]
    float* values;      // [n, value_heads, dim]; may be null
    std::byte* codes;   // [n] rows (decode_codes.h); may be null
};

// Chunks that are prepared at a time: enough for every processor, and launches stay short.
inline constexpr uint32_t kDeltaMostChunks = 32;
inline constexpr uint32_t kDeltaThreads = 256;
inline constexpr uint32_t kDeltaHeadThreads = 512;  // of decode with its norm, heads of 128
inline constexpr uint32_t kDeltaColumns = 32;  // of the state that a block of chunk or decode has

// What prepare leaves of a chunk and value head, in f32: U and W [64][dim]; P [64][64], the decayed
// q_i . k_j for j <= i; factors of q and k rows [64] each; the whole chunk's decay, padded.
GRANARY_HOST_DEVICE constexpr size_t delta_prepared_floats(uint32_t dim) {
    return size_t{2} * kDeltaCells * dim + kDeltaCells * kDeltaCells + 2 * kDeltaCells + 4;
}

// By tensor cores (delta_net_mma.cuh): heads of 128, at most this many value heads a key head;
// taps of the convolution on the way; threads and columns of a block of chunk; bytes of shared
// memory of prepare, and of chunk with one stage or more.
inline constexpr uint32_t kDeltaMmaDim = 128, kDeltaMmaMostValues = 4;
inline constexpr uint32_t kDeltaTaps = 4;
inline constexpr uint32_t kDeltaMmaThreads = 384, kDeltaMmaColumns = 64;
inline constexpr uint32_t kDeltaMmaPrepareShared = 67328;
inline constexpr uint32_t kDeltaMmaHanded = 24576, kDeltaMmaStage = 66560, kDeltaMmaMostStages = 3;
constexpr uint32_t delta_mma_shared(uint32_t stages) {
    return kDeltaMmaHanded + stages * kDeltaMmaStage;
}

}  // namespace granary::gpu::cuda

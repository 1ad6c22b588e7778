// SPDX-License-Identifier: GPL-3.0-or-later
// Prompts of the gated delta net by tensor cores, for heads of 128: f16 factors, f32 sums, the
// state in f32 from the first chunk to the last. What is done is told in delta_net.h; here all
// products of 64 x 64 x 128 are those of tensor cores and the triangular system is inverted.
//
// Between delta_net_prepare.cu and delta_net_chunk.cu a chunk's rows hold f16 where q, k and v
// were, so that nothing else is needed and all chunks are one launch of each (bytes of a row):
//   q of a key head   unit q 256, then P's row of its first two value heads, 128 each
//   k of a key head   unit k 256, then P's row of its third and fourth value head
//   v of a value head -W 256, U 256
//   alpha, beta       exp(G_i), exp(G_last - G_i)
// P and q lack 1 / sqrt(dim), which the outputs are multiplied by.
#pragma once

#include "gpu/cuda/delta_net.cuh"
#include "gpu/cuda/mma.cuh"
#include "gpu/cuda/portable.h"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kDim = kDeltaMmaDim;
constexpr uint32_t kWide = kDim * 2;  // bytes of a row of a head in f16

}  // namespace
}  // namespace granary::gpu::cuda

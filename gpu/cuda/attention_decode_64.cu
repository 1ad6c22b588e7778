// SPDX-License-Identifier: GPL-3.0-or-later
// Decode attention for heads of 64.
#include "gpu/cuda/attention_decode.cuh"

namespace granary::gpu::cuda {
GRANARY_DECODE_DIM(64)
}  // namespace granary::gpu::cuda

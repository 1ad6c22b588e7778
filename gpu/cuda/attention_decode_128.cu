// SPDX-License-Identifier: GPL-3.0-or-later
// Decode attention for heads of 128.
#include "gpu/cuda/attention_decode.cuh"

namespace granary::gpu::cuda {
GRANARY_DECODE_DIM(128)
}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Rows of the embedding table, which may lie in page-locked host memory.
#include "gpu/cuda/rows.cuh"
#include "gpu/cuda/unpack.cuh"

namespace granary::gpu::cuda {

// A thread an octet: grid (octets / 128, tokens). Bytes: an encoded row read, 4 a value written.
extern "C" __global__ void __launch_bounds__(128)
    embed(const std::byte* table, uint32_t type, size_t row_bytes, uint32_t cols,
          const int32_t* tokens, float* x) {
    const uint32_t octet = blockIdx.x * 128 + threadIdx.x;
    if (octet * 8 >= cols) return;
    float v[8];
    decode_octet(static_cast<WeightType>(type),
                 table + static_cast<size_t>(tokens[blockIdx.y]) * row_bytes, octet, cols, v);
    store_octet(x + size_t{blockIdx.y} * cols, octet, cols, v);
}

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Vector functions on single rows, dispatched to the best target of this machine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace granary::gpu::host {

// norm.cpp: out = x / sqrt(mean(x^2) + eps) * weight; a null weight stands for ones.
void rms_norm_row(const float* x, const float* weight, float eps, uint32_t cols, float* out);

// experts.cpp: out[i * stride + j] = silu(gate[i][j]) * up[i][j], rows of 32 values apart.
void silu_multiply(const float* gate, const float* up, uint32_t rows, uint32_t cols, float* out,
                   size_t stride);

// gates.cpp: x[i] *= sigmoid(gate[i]) and x[i] *= silu(gate[i]).
void multiply_sigmoid(float* x, const float* gate, size_t count);
void multiply_silu(float* x, const float* gate, size_t count);

// norm.cpp: x += factor * y.
void add_scaled(float* x, const float* y, float factor, size_t count);

// convert.cpp: 16-bit floats.
void to_half(const float* from, size_t count, uint16_t* to);
void from_half(const uint16_t* from, size_t count, float* to);
// `rows` rows of `count` halves, `stride` bytes apart; fetches as many rows after them into cache.
void rows_from_half(const std::byte* from, size_t stride, size_t rows, size_t count, float* to,
                    size_t to_stride);
void from_bfloat(const uint16_t* from, size_t count, float* to);

}  // namespace granary::gpu::host

// SPDX-License-Identifier: GPL-3.0-or-later
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/host/linear.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "gpu/host/linear.h"
#include "gpu/host/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace granary::gpu::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// kRows weight rows times kInputs activation rows. Each product is summed in two vectors (even
// and odd steps), whose lanes are added at the end, then the values of an unfinished step.
template <size_t kRows, size_t kInputs>
HWY_ATTR void dot_block(const float* const* weights, const float* const* inputs, size_t first_col,
                        size_t cols, float* out, size_t stride, bool add) {
    const hn::ScalableTag<float> d;
    using V = hn::Vec<decltype(d)>;
    const size_t lanes = hn::Lanes(d);
    V sum[kRows][kInputs][2];
    GRANARY_UNROLL
    for (size_t r = 0; r < kRows; ++r) GRANARY_UNROLL
    for (size_t i = 0; i < kInputs; ++i) sum[r][i][0] = sum[r][i][1] = hn::Zero(d);
    const size_t whole = cols / (2 * lanes) * (2 * lanes);
    for (size_t k = 0; k < whole; k += 2 * lanes) {
        GRANARY_UNROLL
        for (size_t step = 0; step < 2; ++step) {
            V x[kInputs];
            GRANARY_UNROLL
            for (size_t i = 0; i < kInputs; ++i)
                x[i] = hn::LoadU(d, inputs[i] + first_col + k + step * lanes);
            GRANARY_UNROLL
            for (size_t r = 0; r < kRows; ++r) {
                const V w = hn::LoadU(d, weights[r] + k + step * lanes);
                GRANARY_UNROLL
                for (size_t i = 0; i < kInputs; ++i)
                    sum[r][i][step] = hn::MulAdd(w, x[i], sum[r][i][step]);
            }
        }
    }
    GRANARY_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
        GRANARY_UNROLL
        for (size_t i = 0; i < kInputs; ++i) {
            float total = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum[r][i][0], sum[r][i][1])));
            for (size_t k = whole; k < cols; ++k) total += weights[r][k] * inputs[i][first_col + k];
            float& to = out[i * stride + r];
            to = add ? to + total : total;
        }
    }
}

template <size_t kRows>
HWY_ATTR void dot_inputs(const float* const* weights, std::span<const float* const> inputs,
                         size_t first_col, size_t cols, float* out, size_t stride, bool add) {
    size_t i = 0;
    for (; i + 2 <= inputs.size(); i += 2)
        dot_block<kRows, 2>(weights, &inputs[i], first_col, cols, out + i * stride, stride, add);
    if (i < inputs.size())
        dot_block<kRows, 1>(weights, &inputs[i], first_col, cols, out + i * stride, stride, add);
}

HWY_ATTR void dot_rows(std::span<const float* const> weights, std::span<const float* const> inputs,
                       size_t first_col, size_t cols, float* out, size_t stride, bool add) {
    if (weights.size() == 4) {
        dot_inputs<4>(weights.data(), inputs, first_col, cols, out, stride, add);
        return;
    }
    for (size_t r = 0; r < weights.size(); ++r)
        dot_inputs<1>(&weights[r], inputs, first_col, cols, out + r, stride, add);
}

}  // namespace granary::gpu::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace granary::gpu::host {

HWY_EXPORT(dot_rows);

void dot_f32(std::span<const float* const> weights, std::span<const float* const> inputs,
             size_t first_col, size_t cols, float* out, size_t stride, bool add) {
    HWY_DYNAMIC_DISPATCH(dot_rows)(weights, inputs, first_col, cols, out, stride, add);
}

namespace {

void multiply_codes(const TileKernels& kernels, const TileWeights& weights, const InputRows& in,
                    float* out, size_t stride, bool add, Workspace& work) {
    const uint32_t groups = in.cols / kGroup;
    for (uint32_t first = 0; first < groups; first += kPanelCols / kGroup) {
        const uint32_t count = std::min(groups - first, kPanelCols / kGroup);
        kernels.unpack(weights, first, count, &work.tile);
        kernels.dot(*weights.format, work.tile, first, count, in.codes, out, stride, weights.rows,
                    add || first > 0);
        if (in.fine)
            kernels.dot(*weights.format, work.tile, groups + first, count, in.codes, out, stride,
                        weights.rows, true);
    }
}

// Rows of f32 weights are read in place; others are decoded, four rows of a panel at a time.
// Weight rows of one format always pass through panels of the same columns.
void multiply_values(const Weight& weight, uint32_t first, uint32_t rows, const InputRows& in,
                     float* out, size_t stride, bool add, Workspace& work) {
    const size_t bytes = row_bytes(weight.type, weight.cols);
    const WeightTypeInfo& info = weight_type_info(weight.type);
    for (uint32_t r = 0; r < rows; r += 4) {
        const uint32_t quad = std::min(rows - r, 4u);
        const std::byte* row = weight.data + (first + r) * bytes;
        const float* pointers[4];
        if (weight.type == WeightType::f32) {
            for (uint32_t j = 0; j < quad; ++j)
                pointers[j] = reinterpret_cast<const float*>(row + j * bytes);
            dot_f32({pointers, quad}, in.values, 0, in.cols, out + r, stride, add);
            continue;
        }
        for (uint32_t col = 0; col < in.cols; col += kDecodedCols) {
            const uint32_t cols = std::min(in.cols - col, kDecodedCols);
            for (uint32_t j = 0; j < quad; ++j) {
                pointers[j] = work.decoded[j];
                decode_row(weight.type,
                           row + j * bytes + col / info.block_elements * info.block_bytes,
                           work.decoded[j], cols);
            }
            dot_f32({pointers, quad}, in.values, col, cols, out + r, stride, add || col > 0);
        }
    }
}

}  // namespace

void multiply(const TileKernels& kernels, const Weight& weight, uint32_t first, uint32_t rows,
              const InputRows& in, float* out, size_t stride, bool add, Workspace& work) {
    const BlockFormat* format = in.codes.empty() ? nullptr : block_format(weight.type);
    if (!format) return multiply_values(weight, first, rows, in, out, stride, add, work);
    const size_t bytes = row_bytes(weight.type, weight.cols);
    multiply_codes(kernels, {weight.type, format, weight.data + first * bytes, bytes, rows}, in,
                   out, stride, add, work);
}

}  // namespace granary::gpu::host
#endif

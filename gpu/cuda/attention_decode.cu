// SPDX-License-Identifier: GPL-3.0-or-later
// Decode attention of any format and head size in f32, and the sum of its cuts' partial results.
#include "gpu/cuda/attention_decode.h"
#include "gpu/cuda/early.cuh"
#include "gpu/cuda/kv_cells.cuh"
#include "gpu/cuda/rotate.cuh"
#include "gpu/cuda/rows.cuh"

namespace granary::gpu::cuda {
namespace {

template <uint32_t kThreads, class Combine>
__device__ float over_block(float value, float (&part)[32], Combine combine) {
    for (uint32_t distance = 16; distance > 0; distance /= 2)
        value = combine(value, __shfl_xor_sync(~0u, value, distance));
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
    __syncthreads();
    value = part[0];
    for (uint32_t i = 1; i < kThreads / 32; ++i) value = combine(value, part[i]);
    return value;
}

}  // namespace

extern "C" {

// A block takes one row and one cut at a time. Grid: (slots of cuts, n * heads). For formats and
// heads without a kernel of their own, and for f32 arithmetic: speed does not matter.
__global__ void __launch_bounds__(kPlainDecodeThreads)
    attention_decode_plain(const AttentionDecode job) {
    __shared__ float query[576], score[kDecodeCut], part[32];
    const uint32_t row = blockIdx.y, token = row / job.heads, head = row % job.heads;
    const uint32_t kv_head = head / (job.heads / job.kv_heads), dim = job.dim;
    const uint32_t end = job.kv.place->first_cell + job.first_token + token + 1;
    const std::byte* const base = kv_base(job.kv);
    for (uint32_t i = threadIdx.x; i < dim; i += kPlainDecodeThreads)
        query[i] = job.q[size_t{row} * dim + i] * job.scale;
    __syncthreads();
    for (uint32_t cut = blockIdx.x; cut * kDecodeCut < end; cut += gridDim.x) {
        const uint32_t first = cut * kDecodeCut, count = min(kDecodeCut, end - first);
        const auto codes = [&](const KvPart& part_of, uint32_t c) {
            return head_codes(job.kv, base, part_of, first + c, kv_head, dim);
        };
        float top = -INFINITY;
        for (uint32_t c = threadIdx.x; c < count; c += kPlainDecodeThreads) {
            const HeadCodes k = codes(job.kv.k, c);
            float sum = 0;
            for (uint32_t i = 0; i < dim; ++i)
                sum += query[i] * value_of(job.kv.k.codes, k, dim, i);
            score[c] = sum;
            top = fmaxf(top, sum);
        }
        top = over_block<kPlainDecodeThreads>(top, part,
                                              [](float a, float b) { return fmaxf(a, b); });
        float total = 0;
        for (uint32_t c = threadIdx.x; c < count; c += kPlainDecodeThreads)
            total += score[c] = exp2f(score[c] - top);
        total =
            over_block<kPlainDecodeThreads>(total, part, [](float a, float b) { return a + b; });
        float* const partial = job.partials + cut * job.partial_floats;
        for (uint32_t i = threadIdx.x; i < dim; i += kPlainDecodeThreads) {
            float sum = 0;
            for (uint32_t c = 0; c < count; ++c)
                sum += score[c] * value_of(job.kv.v.codes, codes(job.kv.v, c), dim, i);
            partial[size_t{row} * dim + i] = sum;
        }
        if (threadIdx.x == 0)
            reinterpret_cast<float2*>(partial + size_t{job.n} * job.heads * dim)[row] =
                make_float2(top, total);
        __syncthreads();
    }
}

// A block is one row: slices of its threads take every so many cuts, four dims a thread, and are
// added in their order. Bytes: the partial results once. Grid: n * heads.
__global__ void __launch_bounds__(kCombineThreads)
    attention_decode_combine(const AttentionDecode job) {
    extern __shared__ float memory[];
    __shared__ float part[32];
    let_next_begin();
    wait_for_kernels_ahead();
    const uint32_t row = blockIdx.x, token = row / job.heads, head = row % job.heads;
    const uint32_t dim = job.dim, quads = dim / 4, slices = kCombineThreads / quads;
    const uint32_t cuts = (job.kv.place->first_cell + job.first_token + token) / kDecodeCut + 1;
    const float* const sums = job.partials + size_t{row} * dim;
    const float* const weights = job.partials + size_t{job.n} * job.heads * dim + 2 * row;
    const auto weight_of = [&](uint32_t cut) {
        return *reinterpret_cast<const float2*>(weights + cut * job.partial_floats);
    };
    float top = -INFINITY;
    for (uint32_t cut = threadIdx.x; cut < cuts; cut += kCombineThreads)
        top = fmaxf(top, weight_of(cut).x);
    top = over_block<kCombineThreads>(top, part, [](float a, float b) { return fmaxf(a, b); });

    const uint32_t slice = threadIdx.x / quads, quad = threadIdx.x % quads;
    float* const totals = memory + slices * dim;
    if (slice < slices) {
        float4 sum = make_float4(0, 0, 0, 0);
        float total = 0;
#pragma unroll 8
        for (uint32_t cut = slice; cut < cuts; cut += slices) {
            const float2 weight = weight_of(cut);
            const float4 more =
                reinterpret_cast<const float4*>(sums + cut * job.partial_floats)[quad];
            const float factor = exp2f(weight.x - top);
            total += factor * weight.y;
            sum.x += factor * more.x;
            sum.y += factor * more.y;
            sum.z += factor * more.z;
            sum.w += factor * more.w;
        }
        reinterpret_cast<float4*>(memory + slice * dim)[quad] = sum;
        if (quad == 0) totals[slice] = total;
    }
    __syncthreads();
    float total = 0;
    for (uint32_t i = 0; i < slices; ++i) total += totals[i];
    // The first slice's row becomes the result: each thread reads and writes only its own dims.
    for (uint32_t i = threadIdx.x; i < dim; i += kCombineThreads) {
        float sum = 0;
        for (uint32_t j = 0; j < slices; ++j) sum += memory[j * dim + i];
        memory[i] = sum / total;
    }
    __syncthreads();
    if (job.kv.v.codes == KvCodes::int4) {
        rotate_in_block(memory, dim);
        __syncthreads();
    }
    for (uint32_t octet = threadIdx.x; octet < dim / 8; octet += kCombineThreads) {
        float v[8];
        load_octet(memory, octet, dim, v);
        store_octet(job.values + size_t{row} * dim, octet, dim, v);
        if (job.codes)
            store_decode_codes(job.codes + token * job.code_row, head * (dim / 8) + octet, v);
    }
}
}

}  // namespace granary::gpu::cuda

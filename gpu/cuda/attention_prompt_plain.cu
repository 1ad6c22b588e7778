// SPDX-License-Identifier: GPL-3.0-or-later
// Prompt attention of any format and any head up to 576 in f32: online softmax over tiles of 16
// cells. For heads without a tensor-core kernel, and for f32 arithmetic.
//
// A block takes eight query rows of a K/V head. Work: 4 dim operations a row and cell, about a
// shared-memory word each two; bytes: K and V once for each eight rows.
#include "gpu/cuda/attention_prompt.h"
#include "gpu/cuda/attention_widen.h"
#include "gpu/cuda/kv_cells.cuh"
#include "gpu/cuda/softmax.cuh"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kDimsOfThread = (kPlainMaxDim + kPlainThreads - 1) / kPlainThreads;
static_assert(kPlainRows * kPlainCells == kPlainThreads && kPlainCells == 16);

}  // namespace

// Grid: (query_tiles(n, group, kPlainRows), kv_heads): cuts one after the other.
extern "C" __global__ void __launch_bounds__(kPlainThreads)
    attention_prompt_plain(const __grid_constant__ AttentionPrompt job) {
    extern __shared__ float memory[];
    __shared__ float weight[kPlainRows][kPlainCells], factor[kPlainRows];
    __shared__ float older[kPlainRows], newer[kPlainRows];
    const QueryTile<kPlainRows> queries{job};
    const uint32_t dim = job.dim, stride = dim + 1;
    float* const query = memory;                        // [kPlainRows][stride], scaled
    float* const cells = memory + kPlainRows * stride;  // [kPlainCells][stride]
    const auto load = [&](const KvPart& part, uint32_t first, uint32_t count) {
        for (uint32_t c = 0; c < count; ++c) {
            const HeadCodes head =
                head_codes(job.kv, job.kv.base, part, first + c, blockIdx.y, dim);
            for (uint32_t i = threadIdx.x; i < dim; i += kPlainThreads)
                cells[c * stride + i] = value_of(part.codes, head, dim, i);
        }
        for (uint32_t c = count; c < kPlainCells; ++c)
            for (uint32_t i = threadIdx.x; i < dim; i += kPlainThreads) cells[c * stride + i] = 0;
    };

    // This thread's row and cell of a tile's scores; its dims of the sums of all rows.
    const uint32_t own = threadIdx.x / kPlainCells, c = threadIdx.x % kPlainCells;
    SoftmaxRow row{-INFINITY, 0};
    float out[kPlainRows][kDimsOfThread] = {};
    for (uint32_t r = 0; r < kPlainRows; ++r)
        for (uint32_t i = threadIdx.x; i < dim; i += kPlainThreads)
            query[r * stride + i] = job.q[queries.place(r) * dim + i] * job.scale;

    for (uint32_t first = queries.begin; first < queries.end; first += kPlainCells) {
        const uint32_t count = min(kPlainCells, queries.end - first);
        __syncthreads();
        load(job.kv.k, first, count);
        __syncthreads();
        float score = 0;
        for (uint32_t i = 0; i < dim; ++i) score += query[own * stride + i] * cells[c * stride + i];
        if (first + c > queries.cell(own)) score = -INFINITY;
        float top = fmaxf(row.maximum, score);
        for (uint32_t distance = kPlainCells / 2; distance > 0; distance /= 2)
            top = fmaxf(top, __shfl_xor_sync(~0u, top, distance));
        const float from = top == -INFINITY ? 0 : top;  // a row that sees nothing of this cut
        const float scaled = exp2f(row.maximum - from);
        row.maximum = top;
        score = exp2f(score - from);
        weight[own][c] = score;
        if (c == 0) factor[own] = scaled;
        for (uint32_t distance = kPlainCells / 2; distance > 0; distance /= 2)
            score += __shfl_xor_sync(~0u, score, distance);
        row.sum = row.sum * scaled + score;
        __syncthreads();
        load(job.kv.v, first, count);
        __syncthreads();
#pragma unroll
        for (uint32_t j = 0; j < kDimsOfThread; ++j) {
            const uint32_t i = threadIdx.x + j * kPlainThreads;
            if (i >= dim) break;
#pragma unroll
            for (uint32_t r = 0; r < kPlainRows; ++r) {
                float total = out[r][j] * factor[r];
                for (uint32_t k = 0; k < kPlainCells; ++k)
                    total += weight[r][k] * cells[k * stride + i];
                out[r][j] = total;
            }
        }
    }

    if (c == 0) {
        Fold folded{row, 0, 1};
        SoftmaxRow& running = job.running.rows[queries.place(own)];
        if (queries.begin > 0) folded = fold(running, row);
        if (queries.begin + kAttentionCut >= job.first_cell + job.n) {
            folded.older /= folded.row.sum;
            folded.newer /= folded.row.sum;
        }
        older[own] = folded.older;
        newer[own] = folded.newer;
        if (queries.exists(own)) running = folded.row;
    }
    __syncthreads();
#pragma unroll
    for (uint32_t r = 0; r < kPlainRows; ++r) {
        if (!queries.exists(r)) break;
        float* const to = job.running.values + queries.place(r) * dim;
#pragma unroll
        for (uint32_t j = 0; j < kDimsOfThread; ++j) {
            const uint32_t i = threadIdx.x + j * kPlainThreads;
            if (i >= dim) break;
            const float value = out[r][j] * newer[r];
            to[i] = queries.begin > 0 ? fmaf(to[i], older[r], value) : value;
        }
    }
}

}  // namespace granary::gpu::cuda

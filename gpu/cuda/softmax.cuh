// SPDX-License-Identifier: GPL-3.0-or-later
// Online softmax over scores as tensor cores leave them: of a tile of 16 rows, a thread holds rows
// g and g + 8, columns 2t, 2t + 1 of each 8, as score[4 * octet + 2 * half + column]. The running
// maximum is that of Milakov and Gimelshein 2018 (arXiv 1805.02867).
#pragma once

#include "gpu/cuda/attention_prompt.h"
#include "gpu/cuda/mma.cuh"

namespace granary::gpu::cuda {

__device__ __forceinline__ float exp2_fast(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// Two rows of a thread: all four threads of a row hold the same numbers.
struct SoftmaxRows {
    SoftmaxRow row[2] = {{-INFINITY, 0}, {-INFINITY, 0}};

    // Scores become weights 2^(score - maximum). `factor`: what older results must be multiplied
    // by, as sum has been.
    template <uint32_t kCount>
    __device__ __forceinline__ void weigh(float (&score)[kCount], float (&factor)[2]) {
#pragma unroll
        for (uint32_t half = 0; half < 2; ++half) {
            auto& [maximum, sum] = row[half];
            float top = maximum;
#pragma unroll
            for (uint32_t i = 2 * half; i < kCount; i += 4)
                top = fmaxf(top, fmaxf(score[i], score[i + 1]));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
            // Where no cell counts so far, all weights are 0.
            const float zero = top == -INFINITY ? 0 : top;
            factor[half] = exp2_fast(maximum - zero);
            maximum = top;
            float more = 0;
#pragma unroll
            for (uint32_t i = 2 * half; i < kCount; i += 4) {
                score[i] = exp2_fast(score[i] - zero);
                score[i + 1] = exp2_fast(score[i + 1] - zero);
                more += score[i] + score[i + 1];
            }
            more += __shfl_xor_sync(~0u, more, 1);
            more += __shfl_xor_sync(~0u, more, 2);
            sum = sum * factor[half] + more;
        }
    }
};

// Scores of cells after `last` (of row g, of row g + 8) do not count. `cell` is the tile's first.
template <uint32_t kCount>
__device__ __forceinline__ void mask(float (&score)[kCount], uint32_t cell,
                                     const uint32_t (&last)[2]) {
#pragma unroll
    for (uint32_t i = 0; i < kCount; ++i)
        if (cell + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2 > last[i / 2 % 2]) score[i] = -INFINITY;
}

// Weights as the A operand of products over 16 columns: [column / 16][register].
template <uint32_t kCount>
__device__ __forceinline__ void pack(const float (&score)[kCount],
                                     uint32_t (&weight)[kCount / 8][4]) {
#pragma unroll
    for (uint32_t i = 0; i < kCount / 2; ++i)
        weight[i / 4][i % 4] = bits(__floats2half2_rn(score[2 * i], score[2 * i + 1]));
}

// Nothing to do where no row of the warp has a new maximum, as is most often the case.
template <uint32_t kCount>
__device__ __forceinline__ void scale(float (&values)[kCount], const float (&factor)[2]) {
    if (!__any_sync(~0u, factor[0] != 1 || factor[1] != 1)) return;
#pragma unroll
    for (uint32_t i = 0; i < kCount; ++i) values[i] *= factor[i / 2 % 2];
}

// Folds a cut into what came before it, which has at least one cell: what the sums of each are to
// be multiplied by.
struct Fold {
    SoftmaxRow row;
    float older, newer;
};
__device__ __forceinline__ Fold fold(const SoftmaxRow& older, const SoftmaxRow& newer) {
    const float maximum = fmaxf(older.maximum, newer.maximum);
    const float a = exp2_fast(older.maximum - maximum), b = exp2_fast(newer.maximum - maximum);
    return {{maximum, fmaf(older.sum, a, newer.sum * b)}, a, b};
}

// Where a query row of a chunk and its cells lie, for blocks of kRows query rows.
template <uint32_t kRows>
struct QueryTile {
    const AttentionPrompt& job;
    const uint32_t tile = gridDim.x - 1 - blockIdx.x;  // the longest first
    const uint32_t group = job.heads / job.kv_heads, rows = job.n * group;
    const uint32_t begin = (job.first_cut + blockIdx.z) * kAttentionCut;
    // Behind the cells that the tile's newest row sees of this cut.
    const uint32_t end = min(begin + kAttentionCut,
                             job.first_cell + (min((tile + 1) * kRows, rows) - 1) / group + 1);

    __device__ uint32_t tiles(uint32_t cells) const {
        return end > begin ? (end - begin + cells - 1) / cells : 0;
    }
    // Of the tile's row `row`: its place among all (token, head), and its own cell.
    __device__ size_t place(uint32_t row) const {
        row = min(tile * kRows + row, rows - 1);
        return size_t{row / group} * job.heads + blockIdx.y * group + row % group;
    }
    __device__ uint32_t cell(uint32_t row) const {
        return job.first_cell + min(tile * kRows + row, rows - 1) / group;
    }
    __device__ bool exists(uint32_t row) const { return tile * kRows + row < rows; }

    // A thread's part of a row's result: kDim / 8 pairs of values, eight apart. pair(i) gives a
    // pair of them.
    template <uint32_t kDim, class Pair>
    __device__ void store(uint32_t row, const SoftmaxRow& sums, Pair&& pair) const {
        if (!exists(row)) return;
        const uint32_t t = threadIdx.x % 4;
        size_t at = place(row);
        Fold folded{sums, 0, 1};
        AttentionSums to = job.running;
        const bool last = begin + kAttentionCut >= job.first_cell + job.n;
        bool read = begin > 0;
        if (job.cut.rows) {
            to = job.cut;
            at += size_t{blockIdx.z} * job.n * job.heads;
            read = false;
        } else {
            if (read) folded = fold(to.rows[at], sums);
            if (last) {
                const float divide = __frcp_rn(folded.row.sum);
                folded.older *= divide;
                folded.newer *= divide;
            }
        }
        const uint32_t mask = 0xfu << threadIdx.x % 32 / 4 * 4;  // the four threads of the row
        __syncwarp(mask);                                        // all have read it
        if (t == 0) to.rows[at] = folded.row;
        float* values = to.values + at * kDim + t * 2;
        std::byte* codes = nullptr;
        if (last && job.codes)
            codes = job.codes + at / job.heads * job.code_row + at % job.heads * kDim * 2 + t * 16;
        uint32_t word[4];
#pragma unroll
        for (uint32_t i = 0; i < kDim / 8; ++i) {
            float2 value = pair(i);
            value.x *= folded.newer;
            value.y *= folded.newer;
            auto* const place = reinterpret_cast<float2*>(values + i * 8);
            if (read) {
                const float2 older = *place;
                value.x = fmaf(older.x, folded.older, value.x);
                value.y = fmaf(older.y, folded.older, value.y);
            }
            *place = value;
            if (!codes) continue;
            // Columns 4s + h and 4s + h + 2 of an octet are neighbours in the row; t = 2s + h keeps
            // such a pair of each of four octets, 16 bytes (ordered_rows.h).
            const float other = __shfl_xor_sync(mask, t % 2 ? value.x : value.y, 1);
            word[i % 4] = t % 2 ? pack_half2(other, value.y) : pack_half2(value.x, other);
            if (i % 4 == 3)
                *reinterpret_cast<uint4*>(codes + i / 4 * 64) =
                    make_uint4(word[0], word[1], word[2], word[3]);
        }
    }
};

}  // namespace granary::gpu::cuda

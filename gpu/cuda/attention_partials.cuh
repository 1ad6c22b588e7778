// SPDX-License-Identifier: GPL-3.0-or-later
// How the partial results of decode attention become one: the eight warps of a block, then the
// eight blocks of a team, then the teams; blocks and teams leave them in global memory, and the
// last to end adds them up. A partial result of a row is the weighted sum of V, unscaled, with the
// maximum of the scores and the sum of the weights. They are added in the order of the cells; what
// has seen none of a row's changes no bit of it.
#pragma once

#include "gpu/cuda/attention_products.cuh"
#include "gpu/cuda/norm_decode.cuh"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kWarps = kDecodeThreads / 32;

// Of shared memory, or of global memory what other blocks have written.
__device__ __forceinline__ float4 load_anywhere(const float4* from) {
    float4 v;
    asm volatile("ld.relaxed.gpu.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
}
__device__ __forceinline__ float2 load_anywhere(const float2* from) {
    float2 v;
    asm volatile("ld.relaxed.gpu.v2.f32 {%0, %1}, [%2];"
                 : "=f"(v.x), "=f"(v.y)
                 : "l"(from)
                 : "memory");
    return v;
}

// Some quads (four dims) of a row.
template <uint32_t kQuads>
struct PartialRow {
    float4 sum[kQuads] = {};
    float maximum = -INFINITY, total = 0;

    // Adds the first 8 of `count` more, 1 at least: {maximum, total} at `weights`, `stride` apart,
    // and sums at `sums`, theirs apart, quads 32 apart. All are loaded before any is used.
    __device__ __forceinline__ void add(uint32_t count, const float2* weights, uint32_t stride,
                                        const float4* sums, uint32_t sums_stride) {
        constexpr uint32_t kMost = 8;
        float2 weight[kMost];
        float4 more[kMost][kQuads];
#pragma unroll
        for (uint32_t i = 0; i < kMost; ++i) {
            weight[i] = load_anywhere(weights);
            if (i >= count) weight[i].x = -INFINITY;
#pragma unroll
            for (uint32_t q = 0; q < kQuads; ++q) more[i][q] = load_anywhere(sums + 32 * q);
            if (i + 1 < count) weights += stride, sums += sums_stride;
        }
        float top = maximum;
#pragma unroll
        for (uint32_t i = 0; i < kMost; ++i) top = fmaxf(top, weight[i].x);
        const float from = top == -INFINITY ? 0 : top;
        scale(exp2_fast(maximum - from));
        maximum = top;
#pragma unroll
        for (uint32_t i = 0; i < kMost; ++i) {
            const float factor = exp2_fast(weight[i].x - from);
            total = fmaf(factor, weight[i].y, total);
#pragma unroll
            for (uint32_t q = 0; q < kQuads; ++q) {
                sum[q].x = fmaf(factor, more[i][q].x, sum[q].x);
                sum[q].y = fmaf(factor, more[i][q].y, sum[q].y);
                sum[q].z = fmaf(factor, more[i][q].z, sum[q].z);
                sum[q].w = fmaf(factor, more[i][q].w, sum[q].w);
            }
        }
    }
    __device__ __forceinline__ void scale(float by) {
        total *= by;
#pragma unroll
        for (float4& s : sum) s.x *= by, s.y *= by, s.z *= by, s.w *= by;
    }
};

// The rotation of KvPart::rotated of a row of kDim dims: lane l has quads l, l + 32, ... of it, or,
// where there are fewer, l % (kDim / 4).
template <uint32_t kDim, uint32_t kQuads>
__device__ __forceinline__ void rotate_row(float (&v)[kQuads][4]) {
    static_assert(kQuads <= 2);
    const uint32_t lane = threadIdx.x % 32;
    const auto cross = [](float& a, float& b) {
        const float low = a, high = b;
        a = low + high;
        b = low - high;
    };
#pragma unroll
    for (auto& x : v) {
        cross(x[0], x[1]), cross(x[2], x[3]);
        cross(x[0], x[2]), cross(x[1], x[3]);
#pragma unroll
        for (uint32_t distance = 1; distance < 32 && distance < kDim / 4; distance *= 2)
#pragma unroll
            for (float& y : x) {
                const float other = __shfl_xor_sync(~0u, y, distance);
                y = lane & distance ? other - y : y + other;
            }
    }
    if constexpr (kQuads == 2)
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) cross(v[0][i], v[1][i]);
#pragma unroll
    for (auto& x : v)
#pragma unroll
        for (float& y : x) y *= rsqrtf(static_cast<float>(kDim));
}

// Of a block: rows in tiles of 8, a warp each. Eight neighbouring blocks are a team: the last of a
// team to end adds up what its blocks have left, the last team what the teams have left.
template <uint32_t kDim, uint32_t kRowTiles, bool kRotated>
struct Partials {
    static constexpr uint32_t kRows = 8 * kRowTiles;
    static constexpr uint32_t kRowQuads = kDim / 4, kQuads = (kRowQuads + 31) / 32;
    static constexpr uint32_t kStride = kDim + 4;  // of the warps' sums: rows 2t in other banks
    static constexpr uint32_t kWarpBytes = 8 * kStride * sizeof(float);

    struct Shared {
        float2 weights[kWarps][kRows];
    };

    const AttentionDecode& job;
    Shared& shared;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;

    // A warp's sums of a tile of rows to shared memory, `at` of it. kSideBySide: dims of a thread
    // are 2g and 2g + 1 of 16, else g and g + 8.
    template <bool kSideBySide>
    __device__ void leave(const RunningSums<kDim, kRowTiles>& running, uint32_t n, float* to) {
        const uint32_t g = lane / 4, t = lane % 4;
#pragma unroll
        for (uint32_t e = 0; e < 2; ++e) {
            float total = running.sum[n][e];
#pragma unroll
            for (uint32_t distance = 4; distance < 32; distance *= 2)
                total += __shfl_xor_sync(~0u, total, distance);
            if (g == 0)
                shared.weights[warp][n * 8 + 2 * t + e] = make_float2(running.maximum[n][e], total);
        }
        to += 2 * t * kStride;
#pragma unroll
        for (uint32_t i = 0; i < kDim / 16; ++i)
#pragma unroll
            for (uint32_t e = 0; e < 2; ++e) {
                float* const at = to + e * kStride + i * 16;
                const float low = running.out[i][n][e], high = running.out[i][n][2 + e];
                if constexpr (kSideBySide)
                    reinterpret_cast<float2*>(at)[g] = make_float2(low, high);
                else
                    at[g] = low, at[g + 8] = high;
            }
    }

    // This lane's quads q of a row.
    __device__ uint32_t quad_of(uint32_t q) const {
        return (lane + 32 * q) % kRowQuads;
    }

    // One row of a block, `at` among [n, heads], `number` in the block. Warps, blocks and teams
    // are added up by the same code, which is cold but for the first time.
    __device__ void finish(uint32_t number, uint32_t at, uint32_t blocks, const float* sums_here,
                           uint32_t warp_stride) {
        const uint32_t team = blockIdx.x / kDecodeTeam, rows = job.n * job.heads;
        const uint32_t weight_slot = job.partial_floats / 2, sum_slot = job.partial_floats / 4;
        auto* const slot_weights =
            reinterpret_cast<float2*>(job.partials + size_t{rows} * kDim) + at;
        auto* const slot_sums =
            reinterpret_cast<float4*>(job.partials + size_t{at} * kDim) + quad_of(0);

        const float2* weights = &shared.weights[0][number];
        const auto* sums =
            reinterpret_cast<const float4*>(sums_here + number % 8 * kStride) + quad_of(0);
        uint32_t count = kWarps, stride = kRows, sum_stride = warp_stride / 4;
        PartialRow<kQuads> row;
#pragma unroll 1
        for (uint32_t level = 0; level < 3; ++level) {
            if (level > 0) {
                const bool blocks_of_team = level == 1;
                const uint32_t first = blocks_of_team ? team * kDecodeTeam : 0;
                const uint32_t step = blocks_of_team ? 1 : kDecodeTeam;
                count = blocks_of_team ? min(blocks - first, kDecodeTeam)
                                       : (blocks + kDecodeTeam - 1) / kDecodeTeam;
                if (count == 1) continue;
                // The first block of a team makes place for the team.
                const uint32_t slot = blocks_of_team ? blockIdx.x : team * kDecodeTeam;
                __syncwarp();  // it is one of those that have just been read
                if (lane < kRowQuads)
#pragma unroll
                    for (uint32_t q = 0; q < kQuads; ++q)
                        slot_sums[slot * sum_slot + 32 * q] = row.sum[q];
                if (lane == 0)
                    slot_weights[slot * weight_slot] = make_float2(row.maximum, row.total);
                if (!is_last((blocks_of_team ? (team + 1) * rows : 0) + at, count)) return;
                weights = slot_weights + first * weight_slot;
                sums = slot_sums + first * sum_slot;
                stride = step * weight_slot;
                sum_stride = step * sum_slot;
            }
            row = {};
#pragma unroll 1
            for (uint32_t i = 0; i < count; i += 8) {
                row.add(count - i, weights, stride, sums, sum_stride);
                weights += 8 * stride, sums += 8 * sum_stride;
            }
        }
        row.scale(1 / row.total);
        float v[kQuads][4], gate[kQuads][4];
        if (job.pairs)
#pragma unroll
            for (uint32_t q = 0; q < kQuads; ++q)
                load_quad<true>(job.pairs + (size_t{at} * 2 + 1) * kDim, quad_of(q), kDim, gate[q]);
#pragma unroll
        for (uint32_t q = 0; q < kQuads; ++q)
            v[q][0] = row.sum[q].x, v[q][1] = row.sum[q].y, v[q][2] = row.sum[q].z,
            v[q][3] = row.sum[q].w;
        if constexpr (kRotated) rotate_row<kDim>(v);
        if (lane >= kRowQuads) return;
#pragma unroll
        for (uint32_t q = 0; q < kQuads; ++q) {
            if (job.pairs)
#pragma unroll
                for (uint32_t i = 0; i < 4; ++i) v[q][i] = times_sigmoid(v[q][i], gate[q][i]);
            store_quad<true>(job.values + size_t{at} * kDim, quad_of(q), kDim, v[q]);
            if (job.codes)
                store_decode_codes(job.codes + at / job.heads * job.code_row,
                                   at % job.heads * kRowQuads + quad_of(q), v[q]);
        }
    }

  private:
    // Whether this is the last of `count`; what they left is visible then.
    __device__ bool is_last(uint32_t counter, uint32_t count) {
        uint32_t before = 0;
        __syncwarp();
        if (lane == 0) {
            before = count_in(job.finished + counter);
            if (before + 1 == count) job.finished[counter] = 0;
        }
        before = __shfl_sync(~0u, before, 0);
        __syncwarp();
        return before + 1 == count;
    }
};

}  // namespace
}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// The gated delta net of prompts in f32, in chunks (delta_net.h).
#include "gpu/cuda/delta_net.cuh"
#include "gpu/cuda/portable.h"
#include "gpu/cuda/rows.cuh"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kPart = 64, kStride = kPart + 4;  // dims of a factor that lie in shared memory

// 64 dims of up to 64 rows, times a factor of the row, to shared memory; zero beyond. Both stand in
// registers in between, so that the next part can come while this one is used.
struct Rows {
    float4 value[4];
    __device__ void fetch(const float* from, size_t stride, uint32_t rows, uint32_t dims) {
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            const uint32_t row = threadIdx.x / 16 + 16 * i, d = threadIdx.x % 16 * 4;
            value[i] = row < rows && d < dims
                           ? *reinterpret_cast<const float4*>(from + row * stride + d)
                           : make_float4(0, 0, 0, 0);
        }
    }
    __device__ void put(float (&to)[kCells][kStride], const float* factors) const {
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            const uint32_t row = threadIdx.x / 16 + 16 * i, d = threadIdx.x % 16 * 4;
            const float f = factors ? factors[row] : 1;
            *reinterpret_cast<float4*>(&to[row][d]) =
                make_float4(value[i].x * f, value[i].y * f, value[i].z * f, value[i].w * f);
        }
    }
};

}  // namespace

extern "C" {

// Work: 4 * 64 dim + 2 * 64 dim operations a token. A block is one chunk of one value head. Grid:
// (chunks, value_heads).
__global__ void __launch_bounds__(kDeltaThreads) delta_net_prepare(const DeltaNet job) {
    __shared__ __align__(16) float q[kCells][kStride], k[kCells][kStride];
    __shared__ float unit_q[kCells], unit_k[kCells], sums[kCells], rate[kCells], of_w[kCells];
    const Chunk chunk = chunk_of(job, blockIdx.x);
    const uint32_t head = blockIdx.y, dim = job.dim, thread = threadIdx.x;
    const Head at = head_of(job, head);
    const float* const x = job.x + chunk.first * at.channels;
    float* const u =
        job.prepared + (size_t{blockIdx.x} * job.value_heads + head) * delta_prepared_floats(dim);
    float* const w = u + kCells * dim;
    float* const p = w + kCells * dim;
    float* const factors = p + kCells * kCells;

    // Of rows that do not exist rates and factors are 0, and the decay stays what it was.
    for (uint32_t row = thread / 32; row < kCells; row += kDeltaThreads / 32) {
        float of_q = 0, of_k = 0;
        if (row < chunk.count)
            for (uint32_t i = thread % 32; i < dim; i += 32) {
                const float a = x[row * at.channels + at.q + i],
                            b = x[row * at.channels + at.k + i];
                of_q += a * a;
                of_k += b * b;
            }
        of_q = warp_sum(of_q);
        of_k = warp_sum(of_k);
        if (thread % 32 == 0) {
            const bool exists = row < chunk.count;
            const size_t gate = size_t{chunk.first + row} * job.value_heads + head;
            unit_q[row] = exists ? 1 / (sqrtf(of_q + job.norm_eps) * sqrtf(float(dim))) : 0;
            unit_k[row] = exists ? 1 / sqrtf(of_k + job.norm_eps) : 0;
            rate[row] = exists ? job.beta[gate] : 0;
            sums[row] = exists ? job.alpha[gate] : 0;
        }
    }
    __syncthreads();
    if (thread == 0)
        for (uint32_t i = 1; i < kCells; ++i) sums[i] += sums[i - 1];

    // k_i . k_j and q_i . k_j: rows i = 4 a .., columns j = b, b + 16, ...
    const uint32_t a = thread / 16 * 4, b = thread % 16;
    float kk[4][4] = {}, qk[4][4] = {};
    for (uint32_t d = 0; d < dim; d += kPart) {
        const uint32_t dims = min(kPart, dim - d);
        Rows rows;
        __syncthreads();
        rows.fetch(x + at.q + d, at.channels, chunk.count, dims);
        rows.put(q, unit_q);
        rows.fetch(x + at.k + d, at.channels, chunk.count, dims);
        rows.put(k, unit_k);
        __syncthreads();
        for (uint32_t i = 0; i < kPart; i += 4) {
            float4 column[4];
#pragma unroll
            for (uint32_t c = 0; c < 4; ++c)
                column[c] = *reinterpret_cast<const float4*>(&k[b + 16 * c][i]);
#pragma unroll
            for (uint32_t r = 0; r < 4; ++r) {
                const float4 from_q = *reinterpret_cast<const float4*>(&q[a + r][i]);
                const float4 from_k = *reinterpret_cast<const float4*>(&k[a + r][i]);
#pragma unroll
                for (uint32_t c = 0; c < 4; ++c) {
                    qk[r][c] += from_q.x * column[c].x + from_q.y * column[c].y +
                                from_q.z * column[c].z + from_q.w * column[c].w;
                    kk[r][c] += from_k.x * column[c].x + from_k.y * column[c].y +
                                from_k.z * column[c].z + from_k.w * column[c].w;
                }
            }
        }
    }
    __syncthreads();
    // The triangular system takes the place of q.
    for (uint32_t r = 0; r < 4; ++r)
        for (uint32_t c = 0; c < 4; ++c) {
            const uint32_t i = a + r, j = b + 16 * c;
            const float between = j <= i ? expf(sums[i] - sums[j]) : 0;
            p[i * kCells + j] = qk[r][c] * between;
            q[i][j] = j < i ? rate[i] * between * kk[r][c] : 0;
        }
    if (thread < kCells) {
        const float decayed = expf(sums[thread]);
        factors[thread] = unit_q[thread] * decayed;
        of_w[thread] = rate[thread] * unit_k[thread] * decayed;
        factors[kCells + thread] = unit_k[thread] * expf(sums[kCells - 1] - sums[thread]);
        if (thread == 0) factors[2 * kCells] = expf(sums[kCells - 1]);
    }
    __syncthreads();
    // Columns of U and W, one a thread: row by row, a row from those before it.
    for (uint32_t column = thread; column < 2 * dim; column += kDeltaThreads) {
        asm volatile("" ::: "memory");  // the system stays in shared memory
        const bool of_v = column < dim;
        const float* const from = x + (of_v ? at.v + column : at.k + column - dim);
        float* const to = of_v ? u + column : w + column - dim;
        float y[kCells] = {};
#pragma unroll
        for (uint32_t i = 0; i < kCells; ++i) {
            float sum = 0;
            if (i < chunk.count) sum = from[i * at.channels] * (of_v ? rate[i] : of_w[i]);
#pragma unroll
            for (uint32_t j = 0; j < i; j += 4) {
                const float4 row = *reinterpret_cast<const float4*>(&q[i][j]);
                sum -= row.x * y[j] + row.y * y[j + 1] + row.z * y[j + 2] + row.w * y[j + 3];
            }
            y[i] = sum;
            to[size_t{i} * dim] = sum;
        }
    }
}

// Work: 6 dim^2 + 64 dim operations a token and value head. Bytes, from the L2 cache mostly: 4 dim
// values a token for each kDeltaColumns columns. A block has some columns of a value head's state
// in shared memory and takes the chunks in order. Grid: (columns / kDeltaColumns, value_heads).
__global__ void __launch_bounds__(kDeltaThreads) delta_net_chunk(const DeltaNet job) {
    extern __shared__ __align__(16) float memory[];
    __shared__ __align__(16) float part[kCells][kStride], delta[kCells][kDeltaColumns];
    __shared__ float factors[2 * kCells + 4];
    auto* const state = reinterpret_cast<float(*)[kDeltaColumns]>(memory);  // [dim]
    const uint32_t head = blockIdx.y, dim = job.dim, thread = threadIdx.x;
    const uint32_t first_column = blockIdx.x * kDeltaColumns;
    const uint32_t columns = min(kDeltaColumns, dim - first_column);
    const Head at = head_of(job, head);
    float* const kept = job.state + size_t{head} * dim * dim + first_column;
    for (uint32_t i = thread; i < dim * kDeltaColumns; i += kDeltaThreads) {
        const uint32_t row = i / kDeltaColumns, c = i % kDeltaColumns;
        state[row][c] = c < columns ? kept[size_t{row} * dim + c] : 0;
    }
    const uint32_t parts = (dim + kPart - 1) / kPart;
    const uint32_t stages = 3 * parts + 1;  // W, q, P, k
    // This thread's results: rows a .. a + 3, columns c, c + 1.
    const uint32_t a = thread / 16 * 4, c = thread % 16 * 2;

    const auto prepared = [&](uint32_t chunk) {
        return job.prepared + (size_t{chunk} * job.value_heads + head) * delta_prepared_floats(dim);
    };
    Rows rows;
    const auto fetch = [&](uint32_t number, uint32_t stage) {
        const float* const u = prepared(number);
        const Chunk chunk = chunk_of(job, number);
        const float* const x = job.x + chunk.first * at.channels;
        if (stage < parts)
            rows.fetch(u + kCells * dim + stage * kPart, dim, kCells, dim - stage * kPart);
        else if (stage < 2 * parts)
            rows.fetch(x + at.q + (stage - parts) * kPart, at.channels, chunk.count,
                       dim - (stage - parts) * kPart);
        else if (stage == 2 * parts)
            rows.fetch(u + 2 * kCells * dim, kCells, kCells, kCells);
        else
            rows.fetch(x + at.k + (stage - 2 * parts - 1) * kPart, at.channels, chunk.count,
                       dim - (stage - 2 * parts - 1) * kPart);
    };
    fetch(0, 0);
    for (uint32_t number = 0; number < job.chunks; ++number) {
        const Chunk chunk = chunk_of(job, number);
        const float* const u = prepared(number);
        float2 of_u[4];
#pragma unroll
        for (uint32_t r = 0; r < 4; ++r)
            of_u[r] =
                c < columns
                    ? *reinterpret_cast<const float2*>(u + size_t{a + r} * dim + first_column + c)
                    : make_float2(0, 0);
        if (thread < 2 * kCells + 1)
            factors[thread] = u[2 * kCells * dim + kCells * kCells + thread];
        float sum[4][2] = {};
        for (uint32_t stage = 0; stage < stages; ++stage) {
            __syncthreads();
            const bool is_q = stage >= parts && stage<2 * parts, is_k = stage> 2 * parts;
            rows.put(part, is_q ? factors : is_k ? factors + kCells : nullptr);
            if (stage + 1 < stages)
                fetch(number, stage + 1);
            else if (number + 1 < job.chunks)
                fetch(number + 1, 0);
            __syncthreads();
            if (is_k) {
                const uint32_t first = (stage - 2 * parts - 1) * kPart;
                if (first + a < dim) {
                    const float decay = factors[2 * kCells];
                    float value[4][2];
#pragma unroll
                    for (uint32_t r = 0; r < 4; ++r) {
                        value[r][0] = state[first + a + r][c] * decay;
                        value[r][1] = state[first + a + r][c + 1] * decay;
                    }
#pragma unroll 8
                    for (uint32_t i = 0; i < kCells; ++i) {
                        const float4 k = *reinterpret_cast<const float4*>(&part[i][a]);
                        const float2 d = *reinterpret_cast<const float2*>(&delta[i][c]);
                        value[0][0] += k.x * d.x, value[0][1] += k.x * d.y;
                        value[1][0] += k.y * d.x, value[1][1] += k.y * d.y;
                        value[2][0] += k.z * d.x, value[2][1] += k.z * d.y;
                        value[3][0] += k.w * d.x, value[3][1] += k.w * d.y;
                    }
#pragma unroll
                    for (uint32_t r = 0; r < 4; ++r) {
                        state[first + a + r][c] = value[r][0];
                        state[first + a + r][c + 1] = value[r][1];
                    }
                }
                continue;
            }
            const uint32_t first = stage < parts ? stage * kPart : (stage - parts) * kPart;
            const float(*const right)[kDeltaColumns] = stage == 2 * parts ? delta : state + first;
            const uint32_t depth = stage == 2 * parts ? kCells : min(kPart, dim - first);
#pragma unroll 4
            for (uint32_t i = 0; i < depth; i += 4) {
                float2 column[4];
#pragma unroll
                for (uint32_t j = 0; j < 4; ++j)
                    column[j] = *reinterpret_cast<const float2*>(&right[i + j][c]);
#pragma unroll
                for (uint32_t r = 0; r < 4; ++r) {
                    const float4 left = *reinterpret_cast<const float4*>(&part[a + r][i]);
                    sum[r][0] += left.x * column[0].x + left.y * column[1].x +
                                 left.z * column[2].x + left.w * column[3].x;
                    sum[r][1] += left.x * column[0].y + left.y * column[1].y +
                                 left.z * column[2].y + left.w * column[3].y;
                }
            }
            if (stage + 1 == parts) {
#pragma unroll
                for (uint32_t r = 0; r < 4; ++r) {
                    *reinterpret_cast<float2*>(&delta[a + r][c]) =
                        make_float2(of_u[r].x - sum[r][0], of_u[r].y - sum[r][1]);
                    sum[r][0] = sum[r][1] = 0;
                }
            } else if (stage == 2 * parts && c < columns) {
#pragma unroll
                for (uint32_t r = 0; r < 4; ++r)
                    if (a + r < chunk.count)
                        *reinterpret_cast<float2*>(
                            job.out + (size_t{chunk.first + a + r} * job.value_heads + head) * dim +
                            first_column + c) = make_float2(sum[r][0], sum[r][1]);
            }
        }
        __syncthreads();
    }
    for (uint32_t i = thread; i < dim * kDeltaColumns; i += kDeltaThreads) {
        const uint32_t row = i / kDeltaColumns, column = i % kDeltaColumns;
        if (column < columns) kept[size_t{row} * dim + column] = state[row][column];
    }
}
}

}  // namespace granary::gpu::cuda

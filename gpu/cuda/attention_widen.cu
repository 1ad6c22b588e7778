// SPDX-License-Identifier: GPL-3.0-or-later
// Around prompt attention: blocks of quantised cells as f16, rotated as they are stored, for the
// tensor-core kernels; and what they leave, rotated back and as codes.
#include "gpu/cuda/attention_widen.h"
#include "gpu/cuda/kv_cells.cuh"
#include "gpu/cuda/rotate.cuh"

namespace granary::gpu::cuda {
namespace {

// kWidenRun values of a head from value `i` on, to two places of 8 values.
__device__ void widen_run(KvCodes codes, const HeadCodes& head, uint32_t i, __half* to) {
    __align__(16) __half value[kWidenRun];
    uint32_t second = i + 8;
    if (codes == KvCodes::int8) {
        const uint4 word = *reinterpret_cast<const uint4*>(head.codes + i);
        const __half scale = reinterpret_cast<const __half*>(head.scales)[i / 64];
        const auto* byte = reinterpret_cast<const int8_t*>(&word);
#pragma unroll
        for (uint32_t j = 0; j < kWidenRun; ++j) value[j] = __hmul(__int2half_rn(byte[j]), scale);
    } else if (codes == KvCodes::int4) {
        // Eight bytes: low nibbles are values i / 32 * 32 + i % 32 / 2 .., high ones 16 later.
        const uint32_t group = i / 32, at = i % 32 / 2;
        const uint2 word = *reinterpret_cast<const uint2*>(head.codes + group * 16 + at);
        const __half scale = reinterpret_cast<const __half*>(head.scales)[group];
#pragma unroll
        for (uint32_t j = 0; j < 8; ++j) {
            const uint32_t byte = (j < 4 ? word.x : word.y) >> j % 4 * 8;
            const int low = static_cast<int>(byte << 28) >> 28;
            const int high = static_cast<int>(byte << 24) >> 28;
            value[j] = __hmul(__int2half_rn(low), scale);
            value[8 + j] = __hmul(__int2half_rn(high), scale);
        }
        i = group * 32 + at;
        second = i + 16;
    } else {
        const auto* from = reinterpret_cast<const uint4*>(head.codes + i * 2);
        reinterpret_cast<uint4*>(value)[0] = from[0];
        reinterpret_cast<uint4*>(value)[1] = from[1];
    }
    *reinterpret_cast<uint4*>(to + i) = reinterpret_cast<const uint4*>(value)[0];
    *reinterpret_cast<uint4*>(to + second) = reinterpret_cast<const uint4*>(value)[1];
}

}  // namespace

extern "C" {

// Bytes: the codes once, twice (int8) or four times (int4) as many written. Heads are multiples of
// 32. A thread takes one run of K or V; grid: (runs of a cell of both / threads, cells).
__global__ void __launch_bounds__(kWidenThreads) attention_widen(const AttentionWiden job) {
    const uint32_t runs = job.dim / kWidenRun, all = 2 * job.kv_heads * runs;
    const uint32_t index = blockIdx.x * kWidenThreads + threadIdx.x;
    if (index >= all) return;
    const uint32_t cell = job.begin + blockIdx.y;
    const bool is_v = index >= all / 2;
    const uint32_t head = index % (all / 2) / runs, i = index % runs * kWidenRun;
    const KvPart &part = is_v ? job.from.v : job.from.k, &wide = is_v ? job.to.v : job.to.k;
    auto* const to = reinterpret_cast<__half*>(
        job.to.base + cell_offset(job.to, wide.code_offset, wide.code_row, cell) +
        head * job.dim * 2);
    if (cell < job.end) {
        widen_run(part.codes, head_codes(job.from, job.from.base, part, cell, head, job.dim), i,
                  to);
    } else {
        reinterpret_cast<uint4*>(to + i)[0] = make_uint4(0, 0, 0, 0);
        reinterpret_cast<uint4*>(to + i)[1] = make_uint4(0, 0, 0, 0);
    }
}

// A block is one row. Grid: n * heads. Bytes: the values, read and written once.
__global__ void __launch_bounds__(kFinishThreads) attention_finish(const AttentionFinish job) {
    __shared__ float x[kPlainMaxDim];
    const size_t row = blockIdx.x;
    const uint32_t token = blockIdx.x / job.heads, head = blockIdx.x % job.heads;
    float* const values = job.values + row * job.dim;
    for (uint32_t i = threadIdx.x; i < job.dim; i += kFinishThreads) x[i] = values[i];
    __syncthreads();
    if (job.rotated) {
        rotate_in_block(x, job.dim);
        __syncthreads();
    }
    store_head(x, job.dim, head, job.heads, values,
               job.codes ? job.codes + token * job.code_row : nullptr);
}
}

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Rotary positions (Su et al. 2021) in the NEOX order: value i of a head pairs with i + dims / 2
// and turns by position * base^(-2 i / dims). Angles are reduced in double: at 1,000,000 cells an
// f32 angle would be off by 0.06. Then K and V to the codes of their cells (gpu/kv_format.h).
#include "gpu/cuda/rope.h"

#include "gpu/cuda/rows.cuh"

namespace granary::gpu::cuda {
namespace {

// A warp has a head in shared memory; between steps that exchange values it synchronises.

// The Walsh-Hadamard rotation, with the sums of gpu/host/kv_codes.cpp in the same order.
__device__ void rotate_head(float* x, uint32_t dim, uint32_t lane) {
    const uint32_t run = dim & (~dim + 1);
    const float scale = 1 / sqrtf(static_cast<float>(run));
    for (uint32_t i = lane; i < dim; i += 32) x[i] *= scale;
    for (uint32_t distance = 1; distance < run; distance *= 2) {
        __syncwarp();
        for (uint32_t i = lane; i < dim / 2; i += 32) {
            const uint32_t low = i / distance * 2 * distance + i % distance;
            const float a = x[low], b = x[low + distance];
            x[low] = a + b;
            x[low + distance] = a - b;
        }
    }
    __syncwarp();
}

// Of positive floats larger bits are larger values, and NaN is the largest of all.
__device__ float largest_of(const float* x, uint32_t count, uint32_t lane) {
    uint32_t largest = 0;
    for (uint32_t i = lane; i < count; i += 32)
        largest = max(largest, __float_as_uint(x[i]) & 0x7fffffffu);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        largest = max(largest, __shfl_xor_sync(~0u, largest, distance));
    return __uint_as_float(largest);
}

__device__ __forceinline__ int code_of(float value, float scale, float limit) {
    return __float2int_rn(fminf(fmaxf(__fdiv_rn(value, scale), -limit), limit));
}

__device__ void encode_head(KvCodes codes, const float* x, uint32_t dim, std::byte* to,
                            std::byte* scales, uint32_t lane) {
    const bool wide = codes == KvCodes::int8;
    const uint32_t group = wide ? 64 : 32;
    const float limit = wide ? 127.0f : 7.0f;
    for (uint32_t first = 0; first < dim; first += group) {
        const uint32_t count = min(group, dim - first);
        const __half half = __float2half_rn(__fdiv_rn(largest_of(x + first, count, lane), limit));
        const float scale = __half2float(half);
        if (lane == 0) reinterpret_cast<__half*>(scales)[first / group] = half;
        const auto code = [&](uint32_t i) {
            return scale == 0 ? 0 : code_of(x[first + i], scale, limit);
        };
        if (wide) {
            for (uint32_t i = lane; i < count; i += 32)
                to[first + i] = static_cast<std::byte>(code(i));
        } else if (lane < count / 2) {
            to[first / 2 + lane] =
                static_cast<std::byte>((code(lane) & 15) | (code(count / 2 + lane) & 15) << 4);
        }
    }
}

__device__ void store_head(const KvView& kv, const KvPart& part, const std::byte* base,
                           uint32_t cell, uint32_t kv_heads, uint32_t head, const float* x,
                           uint32_t dim, uint32_t lane) {
    auto* const step = const_cast<std::byte*>(base) + cell / kStepCells * kv.step_bytes;
    const uint32_t row = cell % kStepCells;
    std::byte* const to =
        step + part.code_offset + row * part.code_row + head * (part.code_row / kv_heads);
    if (part.codes == KvCodes::f16) {
        for (uint32_t i = lane; i < dim / 2; i += 32)
            reinterpret_cast<__half2*>(to)[i] = __floats2half2_rn(x[2 * i], x[2 * i + 1]);
    } else if (part.codes == KvCodes::f32) {
        for (uint32_t i = lane; i < dim; i += 32) reinterpret_cast<float*>(to)[i] = x[i];
    } else {
        encode_head(
            part.codes, x, dim, to,
            step + part.scale_offset + row * part.scale_row + head * (part.scale_row / kv_heads),
            lane);
    }
}

}  // namespace

// A warp a head of q, k or v: grid ((heads + 2 kv_heads) / kRopeWarps, n). Work: 10 operations a
// value. Bytes: 4 read and 4 (q), 0.6 to 4 (k, v) written. Dynamic shared memory: 2 pairs floats,
// and dim floats a warp.
extern "C" __global__ void __launch_bounds__(32 * kRopeWarps)
    rope_store(const __grid_constant__ RopeStore args, const __grid_constant__ RopeTurns turns) {
    extern __shared__ float memory[];
    float* const cosine = memory;
    float* const sine = memory + args.pairs;
    const DecodePlace* const place = args.kv.place;
    const std::byte* const base = place ? place->kv + args.kv.offset : args.kv.base;
    const uint32_t cell = (place ? place->first_cell : args.first_cell) + blockIdx.y;

    for (uint32_t i = threadIdx.x; i < args.pairs; i += 32 * kRopeWarps) {
        const double turn = __dmul_rn(turns.turns[i], static_cast<double>(cell));
        sincospif(static_cast<float>(2 * (turn - rint(turn))), &sine[i], &cosine[i]);
    }
    __syncthreads();

    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, dim = args.dim;
    float* const x = memory + 2 * args.pairs + warp * dim;
    uint32_t head = blockIdx.x * kRopeWarps + warp;
    if (head >= args.heads + 2 * args.kv_heads) return;
    const bool is_q = head < args.heads, is_v = head >= args.heads + args.kv_heads;
    const float* from;
    if (is_q) {
        from = args.q + (size_t{blockIdx.y} * args.heads + head) * dim;
    } else {
        head -= args.heads + (is_v ? args.kv_heads : 0);
        from = (is_v ? args.v : args.k) + (size_t{blockIdx.y} * args.kv_heads + head) * dim;
    }
    float sum = 0;
    for (uint32_t i = lane; i < dim; i += 32) {
        x[i] = from[i];
        sum = fmaf(x[i], x[i], sum);
    }
    const float* const norm = is_q ? args.q_norm : args.k_norm;
    if (!is_v && norm) {
        const float factor = 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(dim) + args.eps);
        for (uint32_t i = lane; i < dim; i += 32) x[i] = x[i] * factor * norm[i];
    }
    __syncwarp();
    if (!is_v) {
        for (uint32_t i = lane; i < args.pairs; i += 32) {
            const float a = x[i], b = x[args.pairs + i], c = cosine[i], s = sine[i];
            x[i] = fmaf(-b, s, __fmul_rn(a, c));
            x[args.pairs + i] = fmaf(a, s, __fmul_rn(b, c));
        }
        __syncwarp();
    }
    const KvPart& part = is_v ? args.kv.v : args.kv.k;
    if (part.codes == KvCodes::int4) rotate_head(x, dim, lane);
    if (is_q) {
        float* const to = args.q + (size_t{blockIdx.y} * args.heads + head) * dim;
        for (uint32_t i = lane; i < dim; i += 32) to[i] = x[i];
    } else {
        store_head(args.kv, part, base, cell, args.kv_heads, head, x, dim, lane);
    }
}

}  // namespace granary::gpu::cuda

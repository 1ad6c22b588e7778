// SPDX-License-Identifier: GPL-3.0-or-later
// Rotary positions (gpu/rope_table.h). Angles are reduced in double: at 1,000,000 cells an f32
// angle would be off by 0.06. Then K and V to the codes of their cells (gpu/kv_format.h).
#include "gpu/cuda/rope.h"

#include "gpu/cuda/early.cuh"
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
            const uint32_t low = 2 * (i & ~(distance - 1)) + (i & (distance - 1));
            const float a = x[low], b = x[low + distance];
            x[low] = a + b;
            x[low + distance] = a - b;
        }
    }
    __syncwarp();
}

// Of positive floats larger bits are larger values, and NaN is the largest of all.
__device__ __forceinline__ uint32_t size_of(float value) {
    return __float_as_uint(value) & 0x7fffffffu;
}

__device__ __forceinline__ int code_of(float value, float scale, float limit) {
    return scale == 0 ? 0 : __float2int_rn(fminf(fmaxf(__fdiv_rn(value, scale), -limit), limit));
}

__device__ __forceinline__ __half scale_of(uint32_t largest, float limit) {
    return __float2half_rn(__fdiv_rn(__uint_as_float(largest), limit));
}

// Where a head of a cell lies.
struct Place {
    std::byte* codes;
    std::byte* scales;
};
__device__ __forceinline__ Place place_of(const KvView& kv, const KvPart& part, std::byte* base,
                                          uint32_t cell, uint32_t kv_heads, uint32_t head) {
    std::byte* const step = base + cell / kStepCells * kv.step_bytes;
    const uint32_t row = cell % kStepCells;
    return {step + part.code_offset + row * part.code_row + head * (part.code_row / kv_heads),
            step + part.scale_offset + row * part.scale_row + head * (part.scale_row / kv_heads)};
}

// A head of any size in shared memory to its place.
__device__ void store_head(KvCodes codes, const float* x, uint32_t dim, const Place& to,
                           uint32_t lane) {
    if (codes == KvCodes::f16) {
        for (uint32_t i = lane; i < dim; i += 32)
            reinterpret_cast<__half*>(to.codes)[i] = __float2half_rn(x[i]);
        return;
    }
    if (codes == KvCodes::f32) {
        for (uint32_t i = lane; i < dim; i += 32) reinterpret_cast<float*>(to.codes)[i] = x[i];
        return;
    }
    const bool wide = codes == KvCodes::int8;
    const uint32_t group = wide ? 64 : 32;
    const float limit = wide ? 127.0f : 7.0f;
    for (uint32_t first = 0; first < dim; first += group) {
        const uint32_t count = min(group, dim - first);
        uint32_t largest = 0;
        for (uint32_t i = lane; i < count; i += 32) largest = max(largest, size_of(x[first + i]));
        const __half half = scale_of(warp_max(largest), limit);
        const float scale = __half2float(half);
        if (lane == 0) reinterpret_cast<__half*>(to.scales)[first / group] = half;
        const auto code = [&](uint32_t i) { return code_of(x[first + i], scale, limit); };
        if (wide) {
            for (uint32_t i = lane; i < count; i += 32)
                to.codes[first + i] = static_cast<std::byte>(code(i));
        } else if (lane < count / 2) {
            to.codes[first / 2 + lane] =
                static_cast<std::byte>((code(lane) & 15) | (code(count / 2 + lane) & 15) << 4);
        }
    }
}

// ---- heads of 32 kEach values in registers: lane l has values l, l + 32, ...

template <uint32_t kEach>
__device__ __forceinline__ void rotate_head(float (&v)[kEach], uint32_t lane) {
    const float scale = 1 / sqrtf(static_cast<float>(32 * kEach));
#pragma unroll
    for (uint32_t j = 0; j < kEach; ++j) v[j] *= scale;
#pragma unroll
    for (uint32_t distance = 1; distance < 32; distance *= 2)
#pragma unroll
        for (uint32_t j = 0; j < kEach; ++j) {
            const float other = __shfl_xor_sync(~0u, v[j], distance);
            v[j] = lane & distance ? other - v[j] : v[j] + other;
        }
#pragma unroll
    for (uint32_t distance = 1; distance < kEach; distance *= 2)
#pragma unroll
        for (uint32_t j = 0; j < kEach; ++j)
            if (!(j & distance)) {
                const float a = v[j], b = v[j + distance];
                v[j] = a + b;
                v[j + distance] = a - b;
            }
}

template <uint32_t kEach>
__device__ __forceinline__ void store_head(KvCodes codes, const float (&v)[kEach], const Place& to,
                                           uint32_t lane) {
    if (codes == KvCodes::f16) {
#pragma unroll
        for (uint32_t j = 0; j < kEach; ++j)
            reinterpret_cast<__half*>(to.codes)[lane + 32 * j] = __float2half_rn(v[j]);
    } else if (codes == KvCodes::f32) {
#pragma unroll
        for (uint32_t j = 0; j < kEach; ++j)
            reinterpret_cast<float*>(to.codes)[lane + 32 * j] = v[j];
    } else if (codes == KvCodes::int8) {
#pragma unroll
        for (uint32_t j = 0; j < kEach; j += 2) {
            const __half half = scale_of(warp_max(max(size_of(v[j]), size_of(v[j + 1]))), 127.0f);
            const float scale = __half2float(half);
            if (lane == 0) reinterpret_cast<__half*>(to.scales)[j / 2] = half;
#pragma unroll
            for (uint32_t i = 0; i < 2; ++i)
                to.codes[lane + 32 * (j + i)] =
                    static_cast<std::byte>(code_of(v[j + i], scale, 127.0f));
        }
    } else {
#pragma unroll
        for (uint32_t j = 0; j < kEach; ++j) {
            const __half half = scale_of(warp_max(size_of(v[j])), 7.0f);
            if (lane == 0) reinterpret_cast<__half*>(to.scales)[j] = half;
            const int code = code_of(v[j], __half2float(half), 7.0f) & 15;
            const int high = __shfl_down_sync(~0u, code, 16);
            if (lane < 16) to.codes[16 * j + lane] = static_cast<std::byte>(code | high << 4);
        }
    }
}

// What becomes of a head: a row of q, or a place in the cache.
struct Head {
    const float* from;
    float* q;           // null: stored at `to`
    const float* norm;  // null: none
    Place to;
    KvCodes codes;
    bool turns, rotated;
};

// `pairs` is a multiple of 32.
template <uint32_t kEach>
__device__ __forceinline__ void in_registers(const Head& head, const float* cosine,
                                             const float* sine, uint32_t pairs, float eps,
                                             uint32_t lane) {
    float v[kEach];
    float sum = 0;
#pragma unroll
    for (uint32_t j = 0; j < kEach; ++j) {
        v[j] = head.from[lane + 32 * j];
        sum = fmaf(v[j], v[j], sum);
    }
    if (head.norm) {
        const float factor = 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(32 * kEach) + eps);
#pragma unroll
        for (uint32_t j = 0; j < kEach; ++j) v[j] = v[j] * factor * head.norm[lane + 32 * j];
    }
    if (head.turns) {
        // Partners lie `apart` registers from each other.
        const auto turn = [&]<uint32_t kApart>() {
#pragma unroll
            for (uint32_t j = 0; j < kApart; ++j) {
                const float a = v[j], b = v[j + kApart];
                const float c = cosine[lane + 32 * j], s = sine[lane + 32 * j];
                v[j] = fmaf(-b, s, __fmul_rn(a, c));
                v[j + kApart] = fmaf(a, s, __fmul_rn(b, c));
            }
        };
        if (pairs == 16 * kEach)
            turn.template operator()<kEach / 2>();
        else if constexpr (kEach > 2)
            turn.template operator()<1>();
    }
    if (head.rotated) rotate_head(v, lane);
    if (head.q) {
#pragma unroll
        for (uint32_t j = 0; j < kEach; ++j) head.q[lane + 32 * j] = v[j];
    } else {
        store_head(head.codes, v, head.to, lane);
    }
}

// A head of any size, in shared memory of `dim` floats.
__device__ void in_memory(const Head& head, const float* cosine, const float* sine, uint32_t pairs,
                          float eps, uint32_t dim, float* x, uint32_t lane) {
    float sum = 0;
    for (uint32_t i = lane; i < dim; i += 32) {
        x[i] = head.from[i];
        sum = fmaf(x[i], x[i], sum);
    }
    if (head.norm) {
        const float factor = 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(dim) + eps);
        for (uint32_t i = lane; i < dim; i += 32) x[i] = x[i] * factor * head.norm[i];
    }
    __syncwarp();
    if (head.turns) {
        for (uint32_t i = lane; i < pairs; i += 32) {
            const float a = x[i], b = x[pairs + i], c = cosine[i], s = sine[i];
            x[i] = fmaf(-b, s, __fmul_rn(a, c));
            x[pairs + i] = fmaf(a, s, __fmul_rn(b, c));
        }
        __syncwarp();
    }
    if (head.rotated) rotate_head(x, dim, lane);
    if (head.q) {
        for (uint32_t i = lane; i < dim; i += 32) head.q[i] = x[i];
    } else {
        store_head(head.codes, x, dim, head.to, lane);
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
    let_next_begin();
    const DecodePlace* const place = args.kv.place;
    std::byte* const base = place ? place->kv + args.kv.offset : args.kv.base;
    const uint32_t cell = (place ? place->first_cell : args.first_cell) + blockIdx.y;

    for (uint32_t i = threadIdx.x; i < args.pairs; i += 32 * kRopeWarps) {
        const double turn = __dmul_rn(turns.turns[i], static_cast<double>(cell));
        float s, c;
        sincospif(static_cast<float>(2 * (turn - rint(turn))), &s, &c);
        sine[i] = __fmul_rn(turns.magnitude, s);
        cosine[i] = __fmul_rn(turns.magnitude, c);
    }
    wait_for_kernels_ahead();
    __syncthreads();

    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, dim = args.dim;
    const uint32_t number = blockIdx.x * kRopeWarps + warp;
    if (number >= args.heads + 2 * args.kv_heads) return;
    const bool is_q = number < args.heads, is_v = number >= args.heads + args.kv_heads;
    const KvPart& part = is_v ? args.kv.v : args.kv.k;
    Head head{};
    if (is_q) {
        const size_t row = size_t{blockIdx.y} * args.heads + number;
        head.from = args.q_from + row * args.q_stride;
        head.q = args.q + row * dim;
    } else {
        const uint32_t h = number - args.heads - (is_v ? args.kv_heads : 0);
        head.from = (is_v ? args.v : args.k) + (size_t{blockIdx.y} * args.kv_heads + h) * dim;
        head.to = place_of(args.kv, part, base, cell, args.kv_heads, h);
    }
    head.norm = is_v ? nullptr : is_q ? args.q_norm : args.k_norm;
    head.codes = part.codes;
    head.turns = !is_v;
    head.rotated = part.codes == KvCodes::int4;
    const bool regular = args.pairs == dim / 2 || args.pairs == 32;
    if (regular && dim == 128)
        in_registers<4>(head, cosine, sine, args.pairs, args.eps, lane);
    else if (regular && dim == 256)
        in_registers<8>(head, cosine, sine, args.pairs, args.eps, lane);
    else if (regular && dim == 64)
        in_registers<2>(head, cosine, sine, args.pairs, args.eps, lane);
    else
        in_memory(head, cosine, sine, args.pairs, args.eps, dim,
                  memory + 2 * args.pairs + warp * dim, lane);
}

}  // namespace granary::gpu::cuda

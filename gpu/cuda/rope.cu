// SPDX-License-Identifier: GPL-3.0-or-later
// Rotary positions (gpu/rope_table.h), then K and V to the codes of their cells (gpu/kv_format.h).
#include "gpu/cuda/early.cuh"
#include "gpu/cuda/rope_head.cuh"

namespace granary::gpu::cuda {
namespace {

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
#pragma unroll
    for (uint32_t j = 0; j < kEach; ++j) v[j] = head.from[lane + 32 * j];
    turn_head(v, head.norm, eps, head.turns ? pairs : 0, head.rotated, lane,
              [&](uint32_t j) { return make_float2(cosine[lane + 32 * j], sine[lane + 32 * j]); });
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
        const float2 angle = angle_of(turns.turns[i], cell, turns.magnitude);
        cosine[i] = angle.x;
        sine[i] = angle.y;
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
        head.to = place_of_head(args.kv, part, base, cell, args.kv_heads, h);
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

// SPDX-License-Identifier: GPL-3.0-or-later
// Matrix products of decode steps: 1 to 8 rows of activations, every weight read once.
//
// Bytes decide: 4.7 MB for 2048 x 4096 weights of Q4_K, 1.1 us at 4.3 TB/s. A warp takes 16 weight
// rows x 256 columns by loads of 16 bytes (lane_groups.cuh) and multiplies them on the tensor cores
// by eight columns, of which as many hold activations as there are rows: a row's result cannot
// depend on the others. About 2.5 instructions a weight to widen: 40 % of the issue slots at 80 %
// of that rate. The warps that share a tile's columns add up their sums in their order.
#include "gpu/cuda/lane_groups.cuh"
#include "gpu/cuda/matmul.h"
#include "gpu/cuda/portable.h"

namespace granary::gpu::cuda {
namespace {

// Activations: lane (row g, thread t). Lanes beyond the rows hold zeros.
struct Input {
    const std::byte* row;  // null: none
    uint32_t groups;       // of 32 columns

    __device__ __forceinline__ void load(uint32_t group, uint4 (&x)[4]) const {
        const bool some = row && group < groups;
        const auto* at = reinterpret_cast<const uint4*>(row + size_t{group} * 64);
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) x[i] = some ? at[i] : uint4{};
    }
};

__device__ __forceinline__ uint32_t word(const uint4& four, uint32_t index) {
    return index == 0 ? four.x : index == 1 ? four.y : index == 2 ? four.z : four.w;
}

__device__ __forceinline__ void products(float (&sum)[2][4], const GroupOperands& low,
                                         const GroupOperands& high, const uint4 (&x)[4]) {
#pragma unroll
    for (uint32_t q = 0; q < 4; ++q)
#pragma unroll
        for (uint32_t s = 0; s < 2; ++s) {
            const uint32_t a[4] = {low.value[q][s][0], high.value[q][s][0], low.value[q][s][1],
                                   high.value[q][s][1]};
            mma_16x8x16(sum[s], a, word(x[2 * s], q), word(x[2 * s + 1], q));
        }
}

// What the warps of a tile have in common: where this lane's two weight rows begin, and which
// chunks of their columns are this warp's.
struct Rows {
    const std::byte *low, *high;
    WeightType low_type, high_type;  // may differ for kAny only
    uint32_t chunks, first, step;
};

template <class Groups>
__device__ __forceinline__ void accumulate(float (&sum)[2][4], const Rows& rows, const Input& in) {
    const uint32_t t = threadIdx.x % 4;
    for (uint32_t chunk = rows.first; chunk < rows.chunks; chunk += rows.step) {
        const std::byte* low = rows.low + size_t{chunk} * Groups::kChunkBytes;
        const std::byte* high = rows.high + size_t{chunk} * Groups::kChunkBytes;
        if constexpr (Groups::kTogether == 2) {
            const auto low_raw = Groups::load(low, t, 0), high_raw = Groups::load(high, t, 0);
#pragma unroll
            for (uint32_t j = 0; j < 2; ++j) {
                uint4 x[4];
                in.load(chunk * 8 + Groups::group(t, j), x);
                products(sum, Groups::widen(low_raw, t, j), Groups::widen(high_raw, t, j), x);
            }
        } else {
#pragma unroll
            for (uint32_t j = 0; j < 2; ++j) {
                const uint32_t group = chunk * 8 + Groups::group(t, j);
                uint4 x[4];
                in.load(group, x);
                typename Groups::Raw low_raw = {}, high_raw = {};
                if (group < in.groups) {
                    low_raw = Groups::load(low, t, j);
                    high_raw = Groups::load(high, t, j);
                }
                products(sum, Groups::widen(low_raw, t, j), Groups::widen(high_raw, t, j), x);
            }
        }
    }
}

// Any type, by its exact decoding.
__device__ __forceinline__ GroupOperands decoded(WeightType type, const std::byte* row,
                                                 uint32_t group, uint32_t cols) {
    GroupOperands out;
#pragma unroll
    for (uint32_t q = 0; q < 4; ++q) {
        float value[8];
        decode_octet(type, row, group * 4 + q, cols, value);
#pragma unroll
        for (uint32_t s = 0; s < 2; ++s)
#pragma unroll
            for (uint32_t h = 0; h < 2; ++h)
                out.value[q][s][h] = pack_half2(value[4 * s + h], value[4 * s + 2 + h]);
    }
    return out;
}
__device__ __noinline__ void accumulate_any(float (&sum)[2][4], const Rows& rows, const Input& in) {
    const uint32_t t = threadIdx.x % 4;
    for (uint32_t chunk = rows.first; chunk < rows.chunks; chunk += rows.step)
        for (uint32_t j = 0; j < 2; ++j) {
            const uint32_t group = chunk * 8 + 2 * t + j;
            uint4 x[4];
            in.load(group, x);
            GroupOperands low = {}, high = {};
            if (group < in.groups) {
                low = decoded(rows.low_type, rows.low, group, in.groups * 32);
                high = decoded(rows.high_type, rows.high, group, in.groups * 32);
            }
            __syncwarp();
            products(sum, low, high, x);
        }
}

// The tile's sums in the first of its warps: c[16, 8] as mma_16x8x16 leaves it.
template <bool kAny>
__device__ __forceinline__ bool multiply(float (&total)[4], const Rows& rows, const Input& in,
                                         const MatvecShape& shape) {
    float sum[2][4] = {};
    if constexpr (kAny) {
        accumulate_any(sum, rows, in);
    } else {
        switch (rows.low_type) {
#define GRANARY_CASE(name)                                       \
    case WeightType::name:                                       \
        accumulate<LaneGroups<WeightType::name>>(sum, rows, in); \
        break;
            GRANARY_CASE(q4_k)
            GRANARY_CASE(q5_k)
            GRANARY_CASE(q6_k)
            GRANARY_CASE(q8_0)
            GRANARY_CASE(q5_0)
            GRANARY_CASE(q5_1)
            GRANARY_CASE(q4_0)
            GRANARY_CASE(iq4_xs)
            GRANARY_CASE(iq4_nl)
            GRANARY_CASE(mxfp4)
            GRANARY_CASE(f16)
            GRANARY_CASE(bf16)
#undef GRANARY_CASE
            default:  // the host asks for the other kernel
                __trap();
        }
    }
    __shared__ float4 part[kMatvecThreads];
    part[threadIdx.x] = {sum[0][0] + sum[1][0], sum[0][1] + sum[1][1], sum[0][2] + sum[1][2],
                         sum[0][3] + sum[1][3]};
    __syncthreads();
    if (rows.first > 0) return false;
    float4 all = part[threadIdx.x];
    for (uint32_t i = 1; i < shape.split; ++i) {
        const float4 more = part[threadIdx.x + 32 * i];
        all.x += more.x, all.y += more.y, all.z += more.z, all.w += more.w;
    }
    total[0] = all.x, total[1] = all.y, total[2] = all.z, total[3] = all.w;
    return true;
}

// out (+)= weight x. Grid: the blocks of all jobs.
template <bool kAny>
__device__ __forceinline__ void dense(const Matvec& all) {
    const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    uint32_t number = 0;
    while (number + 1 < all.jobs && blockIdx.x >= all.job[number + 1].first_block) ++number;
    const MatvecJob& job = all.job[number];
    const uint32_t tile = (blockIdx.x - job.first_block) * all.shape.tiles + warp / all.shape.split;
    const uint32_t row = tile * kMatvecTile + g, last = job.features - 1;
    const Rows rows{job.weight + min(row, last) * job.row_bytes,
                    job.weight + min(row + 8, last) * job.row_bytes,
                    job.type,
                    job.type,
                    (all.cols + 255) / 256,
                    warp % all.shape.split,
                    all.shape.split};
    const Input in{g < all.rows ? all.x + g * all.x_bytes : nullptr, all.cols / 32};
    // Towards the second cache: the same chunk of a tile that a block after those running now
    // takes.
    const uint32_t later = (tile + all.ahead * all.shape.tiles) * kMatvecTile + threadIdx.x % 16;
    if (later < job.features) {
        const std::byte* from = job.weight + later * job.row_bytes +
                                job.row_bytes * rows.first / rows.chunks +
                                threadIdx.x % 32 / 16 * 128;
        asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
    }
    float total[4];
    if (!multiply<kAny>(total, rows, in, all.shape)) return;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t feature = row + i / 2 * 8, column = 2 * t + i % 2;
        if (feature >= job.features || column >= all.rows) continue;
        float& out = job.out[size_t{column} * job.features + feature];
        out = job.add ? out + total[i] : total[i];
    }
}

// silu(gate x) * (up x): a tile's low rows are eight of gate, its high ones the same of up.
template <bool kAny>
__device__ __forceinline__ void gate_up(const ExpertMatvec& job) {
    const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, route = blockIdx.y;
    const int32_t expert = job.expert[route];
    if (!job.list.has(expert)) return;
    const ExpertEntry entry = job.entries[expert];
    const uint32_t feature = (blockIdx.x * job.shape.tiles + warp / job.shape.split) * 8 + g;
    const size_t row = min(feature, job.features - 1);
    const Rows rows{entry.gate + row * job.row_bytes[0],
                    entry.up + row * job.row_bytes[1],
                    job.type[0],
                    job.type[1],
                    (job.cols + 255) / 256,
                    warp % job.shape.split,
                    job.shape.split};
    const Input in{g == 0 ? job.x + route / job.used * job.x_bytes : nullptr, job.cols / 32};
    float total[4];
    if (!multiply<kAny>(total, rows, in, job.shape)) return;
    if (threadIdx.x % 4 || feature >= job.features) return;
    const float value = total[0] / (1 + __expf(-total[0])) * total[2];
    reinterpret_cast<__half*>(job.out + route * job.out_bytes)[ordered_column(feature)] =
        __low2half(as_half2(pack_half2(value, 0)));
}

template <bool kAny>
__device__ __forceinline__ void down(const ExpertMatvec& job) {
    const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, route = blockIdx.y;
    const int32_t expert = job.expert[route];
    if (!job.list.has(expert)) return;
    const ExpertEntry entry = job.entries[expert];
    const uint32_t feature =
        (blockIdx.x * job.shape.tiles + warp / job.shape.split) * kMatvecTile + g;
    const uint32_t last = job.features - 1;
    const Rows rows{entry.down + min(feature, last) * job.row_bytes[0],
                    entry.down + min(feature + 8, last) * job.row_bytes[0],
                    job.type[0],
                    job.type[0],
                    (job.cols + 255) / 256,
                    warp % job.shape.split,
                    job.shape.split};
    const Input in{g == 0 ? job.x + route * job.x_bytes : nullptr, job.cols / 32};
    float total[4];
    if (!multiply<kAny>(total, rows, in, job.shape)) return;
    if (threadIdx.x % 4) return;
    auto* out = reinterpret_cast<__half*>(job.out + route * job.out_bytes);
    const __half2 both = as_half2(pack_half2(total[0], total[2]));
    if (feature < job.features) out[feature] = __low2half(both);
    if (feature + 8 < job.features) out[feature + 8] = __high2half(both);
}

}  // namespace

// NAME takes the types of LaneGroups, gate and up of one; NAME_any takes all.
extern "C" {
__global__ void __launch_bounds__(kMatvecThreads) matvec(const __grid_constant__ Matvec job) {
    dense<false>(job);
}
__global__ void __launch_bounds__(kMatvecThreads) matvec_any(const __grid_constant__ Matvec job) {
    dense<true>(job);
}
__global__ void __launch_bounds__(kMatvecThreads)
    expert_matvec_gate_up(const __grid_constant__ ExpertMatvec job) {
    gate_up<false>(job);
}
__global__ void __launch_bounds__(kMatvecThreads)
    expert_matvec_gate_up_any(const __grid_constant__ ExpertMatvec job) {
    gate_up<true>(job);
}
__global__ void __launch_bounds__(kMatvecThreads)
    expert_matvec_down(const __grid_constant__ ExpertMatvec job) {
    down<false>(job);
}
__global__ void __launch_bounds__(kMatvecThreads)
    expert_matvec_down_any(const __grid_constant__ ExpertMatvec job) {
    down<true>(job);
}
}

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Between the matrices of a decode step: x += what its experts put out, then its RMS norm.
#include "gpu/cuda/cpu_share.cuh"
#include "gpu/cuda/early.cuh"
#include "gpu/cuda/norm_decode.cuh"
#include "gpu/cuda/norm_decode.h"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kThreads = kNormThreads;

struct NormOut {
    const float* weight;  // may be null
    float eps;
    float* values;     // of the row; may be null
    std::byte* codes;  // of the row; may be null
};

constexpr uint32_t kAtOnce = 8;  // experts whose values are under way together

// A quad of x += what experts put out, and what the processor has, which may be null. Without
// branches: what runs once is brought line by line from memory, and soonest in one run.
template <bool kWhole, class Output>
__device__ __forceinline__ void add_outputs(const float* route_weights, uint32_t used,
                                            uint32_t cols, const Output* out, uint32_t quad,
                                            const float* from_cpu, float (&v)[4]) {
#pragma unroll 1
    for (uint32_t from = 0; from < used; from += kAtOnce) {
        float more[kAtOnce][4], factor[kAtOnce];
#pragma unroll
        for (uint32_t i = 0; i < kAtOnce; ++i) {
            const uint32_t number = min(from + i, used - 1);
            load_quad<kWhole>(out + number * cols, quad, cols, more[i]);
            factor[i] = route_weights[number];
            if (from + i >= used) factor[i] = 0;
        }
#pragma unroll
        for (uint32_t i = 0; i < kAtOnce; ++i)
#pragma unroll
            for (uint32_t k = 0; k < 4; ++k)  // of weight 0: nothing was put out
                v[k] = factor[i] == 0 ? v[k] : fmaf(more[i][k], factor[i], v[k]);
    }
    if (from_cpu)
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i)
            if (kWhole || quad * 4 + i < cols) v[i] += __ldcv(from_cpu + quad * 4 + i);
}

// A block a row; `used` 0: nothing is added; values and codes null: no norm. Bytes of a row of
// 2,048 with 8 experts: 57 KB, all from the L2 cache. Time: that of its loads and of a sum over the
// block; where the processor has a share, until it has answered.
template <bool kWhole, class Output>
__device__ __forceinline__ void combine_norm(const float* route_weights, uint32_t used,
                                             uint32_t cols, const Output* out, float* row,
                                             const NormOut& to, const CpuShare& share) {
    __shared__ float sums[kThreads / 32];
    float w[4], v[4] = {}, sum = 0;
    load_weights<kWhole>(to.weight, threadIdx.x, cols, w);
    wait_for_kernels_ahead();
    const float* const from_cpu = wait_for_cpu(share) ? share.sum : nullptr;
    for (uint32_t quad = threadIdx.x; quad * 4 < cols; quad += kThreads) {
        load_quad<kWhole>(row, quad, cols, v);
        add_outputs<kWhole>(route_weights, used, cols, out, quad, from_cpu, v);
        if (used > 0) store_quad<kWhole>(row, quad, cols, v);
#pragma unroll
        for (const float value : v) sum = fmaf(value, value, sum);
    }
    if (!to.values && !to.codes) return;
    const float factor = norm_factor(block_sum<kThreads>(sum, sums), cols, to.eps);
    for (uint32_t quad = threadIdx.x; quad < ordered_octets(cols) * 2; quad += kThreads) {
        if (cols > 4 * kThreads && quad * 4 < cols) {  // else they are still there
            load_quad<kWhole>(row, quad, cols, v);
            load_weights<kWhole>(to.weight, quad, cols, w);
        }
        store_norm<kWhole>(v, w, factor, quad, cols, to.values, to.codes);
    }
}

template <class Output>
__device__ __forceinline__ void combine_norm(const float* route_weights, uint32_t used,
                                             uint32_t cols, const Output* out, float* x,
                                             const float* weight, float eps, float* values,
                                             std::byte* codes, const CpuShare& share) {
    let_next_begin();
    const size_t row = blockIdx.x, route = row * used;
    const NormOut to{weight, eps, values ? values + row * cols : nullptr,
                     codes ? codes + row * ordered_row_bytes(cols) : nullptr};
    if (whole_quads(cols, out, x, weight, values))
        combine_norm<true>(route_weights + route, used, cols, out + route * cols, x + row * cols,
                           to, share);
    else
        combine_norm<false>(route_weights + route, used, cols, out + route * cols, x + row * cols,
                            to, share);
}

#if GRANARY_CUDA_ARCH >= 900
// ---- the same by a cluster of kClusterBlocks: each has its columns of the row, and all have the
// sums of all. One multiprocessor alone would spend its time on 57 KB of loads and, warp after
// warp, on codes.

__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// To the same place in the shared memory of block `rank`.
__device__ __forceinline__ void store_to(uint32_t rank, float& place, float value) {
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(&place));
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(value) : "memory");
}

// Rows are whole quads. A thread has one quad at most.
__device__ __forceinline__ void combine_norm_cluster(const float* route_weights, uint32_t used,
                                                     uint32_t cols, const __half* out, float* row,
                                                     const NormOut& to, const CpuShare& share) {
    __shared__ __align__(16) float sums[kClusterBlocks * kClusterThreads / 32];
    const uint32_t rank = blockIdx.x % kClusterBlocks, warps = blockDim.x / 32;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t each = cluster_quads(cols), quad = rank * each + threadIdx.x;
    const bool is_mine = threadIdx.x < each && quad * 4 < cols;
    float w[4], v[4] = {};
    load_weights<true>(to.weight, is_mine ? quad : 0, cols, w);
    cluster_arrive();  // all of its blocks have begun once all have come here
    wait_for_kernels_ahead();
    const float* const from_cpu = wait_for_cpu(share) ? share.sum : nullptr;
    if (is_mine) {
        load_quad<true>(row, quad, cols, v);
        add_outputs<true>(route_weights, used, cols, out, quad, from_cpu, v);
        if (used > 0) store_quad<true>(row, quad, cols, v);
    }
    const float sum = warp_sum(v[0] * v[0] + v[1] * v[1] + v[2] * v[2] + v[3] * v[3]);
    cluster_wait();
    if (lane < kClusterBlocks) store_to(lane, sums[rank * warps + warp], sum);
    cluster_arrive();
    cluster_wait();
    float total = 0;
    for (uint32_t i = 0; i < kClusterBlocks * warps; i += 4) {
        const float4 four = *reinterpret_cast<const float4*>(sums + i);
        total += (four.x + four.y) + (four.z + four.w);
    }
    const float factor = norm_factor(total, cols, to.eps);
    // Quads of what fills up the codes too.
    if (threadIdx.x < each && quad < ordered_octets(cols) * 2)
        store_norm<true>(v, w, factor, quad, cols, to.values, to.codes);
}
#endif

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    combine_norm_f16(const float* route_weights, uint32_t used, uint32_t cols, const __half* out,
                     float* x, const float* weight, float eps, float* values, std::byte* codes,
                     const __grid_constant__ CpuShare share) {
    combine_norm(route_weights, used, cols, out, x, weight, eps, values, codes, share);
}
extern "C" __global__ void __launch_bounds__(kThreads)
    combine_norm_f32(const float* route_weights, uint32_t used, uint32_t cols, const float* out,
                     float* x, const float* weight, float eps, float* values, std::byte* codes,
                     const __grid_constant__ CpuShare share) {
    combine_norm(route_weights, used, cols, out, x, weight, eps, values, codes, share);
}
#if GRANARY_CUDA_ARCH >= 900
// Grid: kClusterBlocks a row, whose values are whole quads (whole_quads); block: a thread for each
// of cluster_quads; there is a norm.
extern "C" __global__ void __cluster_dims__(kClusterBlocks, 1, 1) __launch_bounds__(kClusterThreads)
    combine_norm_cluster_f16(const float* route_weights, uint32_t used, uint32_t cols,
                             const __half* out, float* x, const float* weight, float eps,
                             float* values, std::byte* codes,
                             const __grid_constant__ CpuShare share) {
    let_next_begin();
    const size_t row = blockIdx.x / kClusterBlocks, route = row * used;
    const NormOut to{weight, eps, values ? values + row * cols : nullptr,
                     codes ? codes + row * ordered_row_bytes(cols) : nullptr};
    combine_norm_cluster(route_weights + route, used, cols, out + route * cols, x + row * cols, to,
                         share);
}
#endif

}  // namespace granary::gpu::cuda

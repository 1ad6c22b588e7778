// SPDX-License-Identifier: GPL-3.0-or-later
// Dense matrix products of prompts for compute capability 9.0a, weights widened before
// (matmul_dense.h).
//
// A block makes 128 activation rows x 256 weight rows, a warpgroup half of the activation rows,
// both operands in shared memory; one thread of a third warpgroup brings them with the copy engine,
// four steps of 64 columns ahead and into the next tile. Blocks walk over the weights of one tile
// of activation rows first, so that the weights stay in the L2 cache.
//
// For a step: 4.2 MFLOP = 1,024 cycles of the tensor cores; 48 KB from L2 (48 bytes a cycle);
// shared memory: 80 bytes a cycle read by the tensor cores, 48 written. A tile's 128 KB of results
// take 4 us at the speed of device memory beside 20 us of products at 2,048 columns.
#include "gpu/cuda/matmul_dense.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "gpu/cuda/tensor_map.h"
#include "gpu/cuda/wgmma.cuh"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kGroups = 2, kStages = 4;
static_assert(kDenseThreads == 128 * (kGroups + 1) && kDenseRows == 64 * kGroups);
constexpr uint32_t kRowsBytes = kDenseRows * kDenseCols * 2;

struct Shared {
    alignas(1024) std::byte rows[kStages][kRowsBytes];
    std::byte weights[kStages][kDenseStepBytes];
    uint64_t full[kStages], empty[kStages];
};
static_assert(kDenseShared == sizeof(Shared));

struct Ring {
    uint32_t slot = 0, parity = 0;
    __device__ void advance() {
        if (++slot == kStages) slot = 0, parity ^= 1;
    }
};

__device__ void bring(const DenseMatmul& args, const TensorMap& rows, Shared& shared,
                      uint32_t tiles) {
    const uint32_t steps = args.steps();
    Ring ring;
    for (uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const uint32_t row = tile / args.tiles * kDenseRows;
        const std::byte* from = args.wide + size_t{tile % args.tiles} * steps * kDenseStepBytes;
        for (uint32_t step = 0; step < steps; ++step, from += kDenseStepBytes, ring.advance()) {
            const uint32_t full = shared_address(&shared.full[ring.slot]);
            barrier_wait(shared_address(&shared.empty[ring.slot]), ring.parity ^ 1);
            barrier_arrive_expecting(full, kRowsBytes + kDenseStepBytes);
            copy_box(shared_address(shared.rows[ring.slot]), &rows, step * kDenseCols, row, full);
            copy_bulk(shared_address(shared.weights[ring.slot]), from, kDenseStepBytes, full);
        }
    }
}

class Multiplier {
  public:
    __device__ Multiplier(const DenseMatmul& args, Shared& shared) : args_(args), shared_(shared) {}

    __device__ void run(uint32_t tiles) {
        const uint32_t steps = args_.steps();
        for (uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            float sum[kDenseFeatures / 2];
            multiply(sum, steps);
            const uint32_t across = tile % args_.tiles;
            const DenseJob& job = args_.of_tile(across);
            const uint32_t row = tile / args_.tiles * kDenseRows + group_ * 64 + warp_ * 16 + g_;
            store(sum, job, row, (across - job.first_tile) * kDenseFeatures);
        }
    }

  private:
    __device__ __forceinline__ void multiply(float (&sum)[kDenseFeatures / 2], uint32_t steps) {
        uint32_t last = 0;
        for (uint32_t step = 0; step < steps; ++step) {
            barrier_wait(shared_address(&shared_.full[ring_.slot]), ring_.parity);
            const uint64_t a =
                operand(shared_address(shared_.rows[ring_.slot]) + group_ * (kRowsBytes / kGroups));
            const uint64_t b = operand(shared_address(shared_.weights[ring_.slot]));
            products_begin();
#pragma unroll
            for (uint32_t i = 0; i < kDenseCols / 16; ++i)
                Product<kDenseFeatures>::shared(sum, a + 2 * i, b + 2 * i, step | i);
            products_commit();
            products_wait<1>();  // those of the step before
            if (step > 0) release(last);
            last = ring_.slot;
            ring_.advance();
        }
        products_wait<0>();
        hold(sum);
        release(last);
    }
    __device__ __forceinline__ void release(uint32_t slot) const {
        if (lane_ == 0) barrier_arrive(shared_address(&shared_.empty[slot]));
    }

    // 32 bytes, a whole sector, of eight rows an instruction; eight such at a time, so that what
    // they add to comes together.
    __device__ __forceinline__ void store(const float (&sum)[kDenseFeatures / 2],
                                          const DenseJob& job, uint32_t row,
                                          uint32_t feature) const {
        const uint32_t left = job.features - feature;
        float* const out = job.out + feature + 2 * t_;
        const bool pairs = (job.stride | job.features) % 2 == 0;
#pragma unroll
        for (uint32_t half = 0; half < 2; ++half) {
            if (row + 8 * half >= args_.rows) break;
            float* const to = out + size_t{row + 8 * half} * job.stride;
#pragma unroll
            for (uint32_t octet = 0; octet < kDenseFeatures / 8; octet += 8) {
                float2 value[8];
#pragma unroll
                for (uint32_t j = 0; j < 8; ++j) {
                    const uint32_t at = (octet + j) * 8 + 2 * t_;
                    value[j] = make_float2(0, 0);
                    if (!job.add || at >= left) continue;
                    const float* const from = to + (octet + j) * 8;
                    if (pairs)
                        value[j] = *reinterpret_cast<const float2*>(from);
                    else
                        value[j] = make_float2(from[0], at + 1 < left ? from[1] : 0);
                }
#pragma unroll
                for (uint32_t j = 0; j < 8; ++j) {
                    const uint32_t at = (octet + j) * 8 + 2 * t_;
                    if (at >= left) continue;
                    float* const into = to + (octet + j) * 8;
                    const float* const more = sum + (octet + j) * 4 + 2 * half;
                    const float2 result = make_float2(value[j].x + more[0], value[j].y + more[1]);
                    if (pairs) {
                        *reinterpret_cast<float2*>(into) = result;
                    } else {
                        into[0] = result.x;
                        if (at + 1 < left) into[1] = result.y;
                    }
                }
            }
        }
    }

    const DenseMatmul& args_;
    Shared& shared_;
    Ring ring_;
    const uint32_t lane_ = threadIdx.x % 32, g_ = lane_ / 4, t_ = lane_ % 4;
    const uint32_t warp_ = threadIdx.x / 32 % 4, group_ = threadIdx.x / 128;
};

}  // namespace

extern "C" __global__ void __launch_bounds__(kDenseThreads, 1)
    matmul_dense_wgmma(const __grid_constant__ DenseMatmul args,
                       const __grid_constant__ TensorMap rows) {
    extern __shared__ __align__(1024) std::byte memory[];
    auto& shared = *reinterpret_cast<Shared*>(memory);
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < kStages; ++i) {
            barrier_init(shared_address(&shared.full[i]), 1);
            barrier_init(shared_address(&shared.empty[i]), 4 * kGroups);
        }
        barrier_init_done();
    }
    __syncthreads();
    const uint32_t tiles = (args.rows + kDenseRows - 1) / kDenseRows * args.tiles;
    if (threadIdx.x >= 128 * kGroups) {
        fewer_registers<24>();
        if (threadIdx.x == 128 * kGroups) bring(args, rows, shared, tiles);
    } else {
        more_registers<240>();
        Multiplier(args, shared).run(tiles);
    }
}

}  // namespace granary::gpu::cuda
#endif

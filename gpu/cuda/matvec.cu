// SPDX-License-Identifier: GPL-3.0-or-later
// Dense matrices of decode steps: out (+)= weight x, and what a delta net makes of its inputs.
// Grid: the blocks of all jobs.
#include "gpu/cuda/delta_inputs.cuh"
#include "gpu/cuda/matvec.cuh"

namespace granary::gpu::cuda {
namespace {

template <uint32_t kRows>
struct DenseFinish {
    const MatvecJob& job;
    uint32_t rows;
    float before[kRows * kMatvecTile / 32 + 1];

    // f(number of the value among this lane's, its activation row, its weight row in the tile)
    template <class F>
    __device__ __forceinline__ void each(uint32_t tile, const F& f) {
#pragma unroll
        for (uint32_t i = 0; i < (kRows * kMatvecTile + 31) / 32; ++i) {
            const uint32_t number = i * 32 + threadIdx.x % 32;
            const uint32_t row = number / kMatvecTile, r = number % kMatvecTile;
            const uint32_t feature = tile * kMatvecTile + r;
            if (row < rows && feature < job.features)
                f(before[i], row, r, job.out[size_t{row} * job.features + feature]);
        }
    }
    // What there was is read before it is needed.
    __device__ __forceinline__ void begin(uint32_t tile) {
        if (job.after == MatvecAfter::add)
            each(tile, [](float& was, uint32_t, uint32_t, const float& out) { was = out; });
    }
    template <class Total>
    __device__ __forceinline__ void end(uint32_t tile, const Total& total) {
        each(tile, [&](float& was, uint32_t row, uint32_t r, float& out) {
            float value = total(row, r);
            if (job.after == MatvecAfter::add) value += was;
            if constexpr (kRows == 1)
                if (job.leads_to_delta_net()) value = input(tile * kMatvecTile + r, value);
            out = value;
        });
    }

  private:
    // Of a delta net. What it takes beside lies in the second cache, and registers are too few to
    // have it from the beginning. A row of the tail is renewed by the thread that has read it.
    __device__ __forceinline__ float input(uint32_t feature, float value) const {
        if (job.after == MatvecAfter::rate) return rate_of(value);
        if (job.after == MatvecAfter::decay)
            return decay_of(value, job.by[0][feature], job.by[1][feature]);
        static_assert(kDeltaTaps == 4);
        const float4 taps = reinterpret_cast<const float4*>(job.by[0])[feature];
        const float weights[kDeltaTaps] = {taps.x, taps.y, taps.z, taps.w};
        float values[kDeltaTaps];
#pragma unroll
        for (uint32_t i = 0; i + 1 < kDeltaTaps; ++i)
            values[i] = job.tail[i * job.features + feature];
        values[kDeltaTaps - 1] = value;
#pragma unroll
        for (uint32_t i = 0; i + 1 < kDeltaTaps; ++i)
            job.tail[i * job.features + feature] = values[i + 1];
        return convolved(weights, values);
    }
};

__device__ __forceinline__ const MatvecJob& job_of_block(const Matvec& all) {
    uint32_t number = 0;
    while (number + 1 < all.jobs && blockIdx.x >= all.job[number + 1].first_block) ++number;
    return all.job[number];
}
__device__ __forceinline__ Tiles tiles_of(const Matvec& all, const MatvecJob& job) {
    return {job.weight,
            job.weight,
            job.row_bytes,
            job.row_bytes,
            job.features,
            kMatvecTile,
            8,
            all.cols,
            blockIdx.x - job.first_block,
            job.blocks,
            job.groups};
}

template <uint32_t kRows, uint32_t kSplit>
__device__ __forceinline__ void dense(const Matvec& all) {
    extern __shared__ __align__(16) std::byte memory[];
    let_next_begin();
    const MatvecJob& job = job_of_block(all);
    multiply_blocks<kRows, kSplit, true>(
        job.type, tiles_of(all, job), all.launch, all.x_bytes, all.rows, memory,
        [&] { return all.x; }, DenseFinish<kRows>{job, all.rows, {}});
}

}  // namespace

// One row in small blocks, in large ones, and many rows, all of the types of blocks; and any type.
// Large ones have fewer registers than they could: the next kernel's blocks stand ready beside
// them.
#define GRANARY_WIDE_FEW __launch_bounds__(kMatvecWideThreads * 3 / 2, 1)
extern "C" {
__global__ void GRANARY_BOUNDS matvec(const __grid_constant__ Matvec job) {
    dense<1, kMatvecThreads / 32>(job);
}
__global__ void GRANARY_WIDE_FEW matvec_wide(const __grid_constant__ Matvec job) {
    dense<1, kMatvecSplit>(job);
}
__global__ void GRANARY_WIDE_BOUNDS matvec_rows(const __grid_constant__ Matvec job) {
    dense<kMatvecRows, kMatvecSplit>(job);
}
__global__ void GRANARY_WIDE_BOUNDS matvec_any(const __grid_constant__ Matvec job) {
    let_next_begin();
    const MatvecJob& mine = job_of_block(job);
    const WeightType type[2] = {mine.type, mine.type};
    multiply_any(type, tiles_of(job, mine), job.launch, job.values, job.cols, job.rows,
                 DenseFinish<kMatvecRows>{mine, job.rows, {}});
}
}

}  // namespace granary::gpu::cuda

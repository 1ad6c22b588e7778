// SPDX-License-Identifier: GPL-3.0-or-later
// What a card can do at most, by kernels that do nothing else: f16 tensor-core products with f32
// sums (mma.sync, wgmma), those of 8-bit integers (mma.sync) and a copy of device memory. Factors
// are random, since a card runs products of zeros faster than of numbers.
#include "gpu/cuda/mma.cuh"
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "gpu/cuda/wgmma.cuh"
#endif

namespace granary::gpu::cuda {
namespace {

// Two f16 in +-[0.5, 1), from a number.
__device__ __forceinline__ uint32_t some_halves(uint32_t number) {
    number = (number ^ number >> 16) * 0x7feb352du;
    number = (number ^ number >> 15) * 0x846ca68bu;
    number ^= number >> 16;
    return (number & 0x83ff83ffu) | 0x38003800u;
}

}  // namespace

// Blocks of 256 threads. FLOP: blocks * 8 * rounds * kMmaAtOnce * 4,096 (kMmaAtOnce = 16).
extern "C" __global__ void __launch_bounds__(256) limit_mma(uint32_t rounds, float* out) {
    constexpr uint32_t kAtOnce = 16;
    const uint32_t seed = (blockIdx.x * blockDim.x + threadIdx.x) * 64;
    uint32_t a[4][4], b[4][2];
    float c[kAtOnce][4] = {};
    for (uint32_t i = 0; i < 4; ++i) {
        for (uint32_t j = 0; j < 4; ++j) a[i][j] = some_halves(seed + 4 * i + j);
        for (uint32_t j = 0; j < 2; ++j) b[i][j] = some_halves(seed + 16 + 2 * i + j);
    }
    for (uint32_t round = 0; round < rounds; ++round) {
#pragma unroll
        for (uint32_t i = 0; i < kAtOnce; ++i)
            mma_16x8x16(c[i], a[i / 4], b[i % 4][0], b[i % 4][1]);
    }
    float sum = 0;
    for (uint32_t i = 0; i < kAtOnce; ++i)
        for (uint32_t j = 0; j < 4; ++j) sum += c[i][j];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// As many products of 8 bits, each twice as deep: 8,192 operations.
extern "C" __global__ void __launch_bounds__(256) limit_mma_int8(uint32_t rounds, float* out) {
    constexpr uint32_t kAtOnce = 16;
    const uint32_t seed = (blockIdx.x * blockDim.x + threadIdx.x) * 64;
    uint32_t a[4][4], b[4][2];
    int32_t c[kAtOnce][4] = {};
    for (uint32_t i = 0; i < 4; ++i) {
        for (uint32_t j = 0; j < 4; ++j) a[i][j] = some_halves(seed + 4 * i + j);
        for (uint32_t j = 0; j < 2; ++j) b[i][j] = some_halves(seed + 16 + 2 * i + j);
    }
    for (uint32_t round = 0; round < rounds; ++round) {
#pragma unroll
        for (uint32_t i = 0; i < kAtOnce; ++i)
            mma_16x8x32(c[i], a[i / 4], b[i % 4][0], b[i % 4][1]);
    }
    int32_t sum = 0;
    for (uint32_t i = 0; i < kAtOnce; ++i)
        for (uint32_t j = 0; j < 4; ++j) sum ^= c[i][j];
    out[blockIdx.x * blockDim.x + threadIdx.x] = __int_as_float(sum);
}

// Blocks of 256 threads, one a multiprocessor; 40 KB of dynamic shared memory. FLOP: blocks * 2 *
// rounds * 4 * 524,288.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
extern "C" __global__ void __launch_bounds__(256, 1) limit_wgmma(uint32_t rounds, float* out) {
    extern __shared__ __align__(1024) uint32_t memory[];
    for (uint32_t i = threadIdx.x; i < 40960 / 4; i += 256) memory[i] = some_halves(i);
    fence_for_async();
    __syncthreads();
    const uint64_t b = operand(shared_address(memory));
    uint32_t a[4][4];
    for (uint32_t i = 0; i < 16; ++i) a[i / 4][i % 4] = some_halves(threadIdx.x * 16 + i);
    float sum[128];
    for (float& value : sum) value = 0;
#pragma unroll 1
    for (uint32_t round = 0; round < rounds; ++round) {
        products_begin();
#pragma unroll
        for (uint32_t step = 0; step < 4; ++step)
            Product<256>::registers(sum, a[step], b + step * 2);
        products_commit();
    }
    products_wait<0>();
    hold(sum);
    float total = 0;
    for (float value : sum) total += value;
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}
#endif

extern "C" __global__ void __launch_bounds__(256)
    limit_copy(const uint4* from, uint4* to, size_t count) {
    constexpr uint32_t kAtOnce = 4;
    const size_t stride = size_t{gridDim.x} * blockDim.x;
    for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
         i += kAtOnce * stride) {
        uint4 value[kAtOnce];
#pragma unroll
        for (uint32_t j = 0; j < kAtOnce; ++j)
            if (i + j * stride < count) value[j] = from[i + j * stride];
#pragma unroll
        for (uint32_t j = 0; j < kAtOnce; ++j)
            if (i + j * stride < count) to[i + j * stride] = value[j];
    }
}

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Weights of any type to f16, once a call of a dense matrix product (matmul_dense.h). Each is
// decoded exactly and rounded once.
//
// Bytes: the weights once, 2 a weight written, which the L2 cache keeps for the product.
#include "gpu/cuda/matmul_dense.h"
#include "gpu/cuda/mma.cuh"
#include "gpu/cuda/portable.h"
#include "gpu/cuda/unpack.cuh"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kSteps = 256 / kDenseCols;
constexpr uint32_t kSliceBytes = kDenseWidenRows * 128;  // this block's rows of a step

// Where a thread's 64 columns of a row go: eight pieces of 16 bytes, swizzled by the row.
struct Place {
    std::byte* slice;
    uint32_t row;
    // The 32 columns `group` (0, 1), as ordered rows keep them.
    __device__ __forceinline__ void put(uint32_t group, const float (&value)[4][8]) const {
#pragma unroll
        for (uint32_t piece = 0; piece < 4; ++piece) {
            const uint32_t s = piece / 2, h = piece % 2;
            uint32_t word[4];
#pragma unroll
            for (uint32_t t = 0; t < 4; ++t)
                word[t] = pack_half2(value[t][4 * s + h], value[t][4 * s + 2 + h]);
            *reinterpret_cast<uint4*>(slice + swizzled(row, group * 4 + piece)) =
                make_uint4(word[0], word[1], word[2], word[3]);
        }
    }
};

template <WeightType kType>
__device__ __forceinline__ void widen(const std::byte* row, uint32_t first, uint32_t cols,
                                      const Place& place) {
#pragma unroll 1
    for (uint32_t group = 0; group < 2; ++group) {
        float value[4][8];
#pragma unroll
        for (uint32_t t = 0; t < 4; ++t) {
            const uint32_t octet = (first + group * 32) / 8 + t;
            if (first + group * 32 >= cols) {
#pragma unroll
                for (float& zero : value[t]) zero = 0;
            } else {
                decode_octet<kType>(row, octet, value[t]);
            }
        }
        place.put(group, value);
    }
}
// Eight weights that are numbers, by loads of 16 bytes where they all exist and lie so.
template <WeightType kType>
__device__ __forceinline__ void load_eight(const std::byte* row, uint32_t octet, uint32_t cols,
                                           float (&out)[8]) {
    constexpr uint32_t kBytes = kType == WeightType::f32 ? 32 : 16;
    const std::byte* const from = row + size_t{octet} * kBytes;
    if (octet * 8 + 8 > cols || reinterpret_cast<uintptr_t>(from) % 16 != 0)
        return decode_octet(kType, row, octet, cols, out);
    const auto* const words = reinterpret_cast<const uint4*>(from);
    const uint4 a = words[0];
    if constexpr (kType == WeightType::f32) {
        const uint4 b = words[1];
        const uint32_t all[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) out[i] = __uint_as_float(all[i]);
    } else {
        const uint32_t all[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            if constexpr (kType == WeightType::f16) {
                const float2 two = __half22float2(as_half2(all[i]));
                out[2 * i] = two.x;
                out[2 * i + 1] = two.y;
            } else {
                out[2 * i] = __uint_as_float(all[i] << 16);
                out[2 * i + 1] = __uint_as_float(all[i] & 0xffff0000);
            }
        }
    }
}
template <WeightType kType>
__device__ __forceinline__ void widen_numbers(const std::byte* row, uint32_t first, uint32_t cols,
                                              const Place& place) {
#pragma unroll 1
    for (uint32_t group = 0; group < 2; ++group) {
        float value[4][8] = {};
        if (first + group * 32 < cols)
#pragma unroll
            for (uint32_t t = 0; t < 4; ++t)
                load_eight<kType>(row, (first + group * 32) / 8 + t, cols, value[t]);
        place.put(group, value);
    }
}
__device__ __forceinline__ void widen_any(WeightType type, const std::byte* row, uint32_t first,
                                          uint32_t cols, const Place& place) {
#pragma unroll 1
    for (uint32_t group = 0; group < 2; ++group) {
        float value[4][8] = {};
        if (first + group * 32 < cols)
#pragma unroll
            for (uint32_t t = 0; t < 4; ++t)
                decode_octet(type, row, (first + group * 32) / 8 + t, cols, value[t]);
        place.put(group, value);
    }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kDenseWidenThreads)
    matmul_widen(const __grid_constant__ DenseMatmul args) {
    __shared__ __align__(16) std::byte slice[kSteps][kSliceBytes];
    const uint32_t first_row = blockIdx.y * kDenseWidenRows, tile = first_row / kDenseFeatures;
    const DenseJob& job = args.of_tile(tile);
    const uint32_t feature = first_row - job.first_tile * kDenseFeatures;
    if (feature >= job.features) return;  // what it would make meets no result
    const uint32_t row = threadIdx.x / kSteps, step = threadIdx.x % kSteps;
    const uint32_t first = (blockIdx.x * kSteps + step) * kDenseCols;
    if (feature + row < job.features) {
        const std::byte* const from = job.weight + (feature + row) * job.row_bytes;
        const Place place{slice[step], row};
        switch (job.type) {
#define GRANARY_CASE(type)                                      \
    case WeightType::type:                                      \
        widen<WeightType::type>(from, first, args.cols, place); \
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
#undef GRANARY_CASE
#define GRANARY_CASE(type)                                              \
    case WeightType::type:                                              \
        widen_numbers<WeightType::type>(from, first, args.cols, place); \
        break;
            GRANARY_CASE(f32)
            GRANARY_CASE(f16)
            GRANARY_CASE(bf16)
#undef GRANARY_CASE
            default:
                widen_any(job.type, from, first, args.cols, place);
        }
    }
    __syncthreads();
    const uint32_t steps = args.steps();
    for (uint32_t i = threadIdx.x; i < kSteps * kSliceBytes / 16; i += kDenseWidenThreads) {
        const uint32_t of = i / (kSliceBytes / 16), at = i % (kSliceBytes / 16) * 16;
        const uint32_t number = blockIdx.x * kSteps + of;
        if (number >= steps) break;
        *reinterpret_cast<uint4*>(args.wide + (size_t{tile} * steps + number) * kDenseStepBytes +
                                  first_row % kDenseFeatures * 128 + at) =
            *reinterpret_cast<const uint4*>(slice[of] + at);
    }
}

}  // namespace granary::gpu::cuda

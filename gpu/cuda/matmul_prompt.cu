// SPDX-License-Identifier: GPL-3.0-or-later
// Matrix products of prompts in f16, of every weight type: dense matrices, and experts over tiles
// of sorted routes. Tuned for compute capability 8.0 and up.
//
// A block of four warps makes a tile (prompt_tile.cuh); a warp has 32 weight rows and all
// activations. Raw weights come to shared memory by asynchronous copies and go from
// there to tensor-core operands in registers, eight at a time (unpack.cuh), so that each is widened
// once a tile; activations are read by matrix loads.
//
// For a tile of 128 x 128 and 64 columns: 2.1 MFLOP = 1,024 cycles of the tensor cores of 8.0; 16
// KB of activations and 4.6 KB of 4-bit weights from L2; about 5 instructions a weight to widen
// (1,280 of 4,096 issue slots).
#include "gpu/cuda/fragments.cuh"
#include "gpu/cuda/matmul.h"
#include "gpu/cuda/portable.h"
#include "gpu/cuda/prompt_tile.cuh"
#include "gpu/cuda/unpack.cuh"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kStageBytes = kTileRows * 128;

// Operands of one row for 32 columns: [s][h] as in fragments.cuh.
struct OctetOperands {
    uint32_t value[2][2];
};

template <uint32_t kOffset>
__device__ __forceinline__ OctetOperands widen(const Octet& octet) {
    const __half2 scale = both_halves(__float2half_rn(octet.scale));
    const __half2 less = both_halves(__float2half_rn(-octet.minimum));
    const __half2 zero = as_half2(0x64006400 + kOffset * 0x10001u);
    OctetOperands out;
#pragma unroll
    for (uint32_t s = 0; s < 2; ++s)
#pragma unroll
        for (uint32_t h = 0; h < 2; ++h) {
            const uint32_t raised = __byte_perm(octet.code[s], 0x64646464, h ? 0x4341 : 0x4240);
            out.value[s][h] = bits(__hfma2(__hsub2(as_half2(raised), zero), scale, less));
        }
    return out;
}
__device__ __forceinline__ OctetOperands widen(const float (&value)[8]) {
    OctetOperands out;
#pragma unroll
    for (uint32_t s = 0; s < 2; ++s)
#pragma unroll
        for (uint32_t h = 0; h < 2; ++h)
            out.value[s][h] = pack_half2(value[4 * s + h], value[4 * s + 2 + h]);
    return out;
}

// kType f32 stands for any type.
template <WeightType kType>
__device__ __forceinline__ OctetOperands octet_at(const std::byte* raw, uint32_t octet) {
    if constexpr (kType == WeightType::f16) {
        const uint4 eight = reinterpret_cast<const uint4*>(raw)[octet];
        return {{{__byte_perm(eight.x, eight.y, 0x5410), __byte_perm(eight.x, eight.y, 0x7632)},
                 {__byte_perm(eight.z, eight.w, 0x5410), __byte_perm(eight.z, eight.w, 0x7632)}}};
    } else if constexpr (kType == WeightType::bf16) {
        const auto* words = reinterpret_cast<const uint32_t*>(raw) + octet * 4;
        float value[8];
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            value[2 * i] = __uint_as_float(words[i] << 16);
            value[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
        }
        return widen(value);
    } else {
        using Type = Unpack<kType>;
        constexpr uint32_t kOctets = Type::kWeights / 8;
        return widen<Type::kOffset>(
            Type::octet(raw + octet / kOctets * Type::kBytes, octet % kOctets));
    }
}

template <WeightType kType>
struct Shared {
    static constexpr PromptFormat kFormat = prompt_format(kType);
    static constexpr PromptBuffers kBuffers = kFormat.buffers(kBefore80);
    alignas(128) std::byte stage[kBuffers.stages][kStageBytes];
    std::byte raw[kBuffers.raws][kPromptRows * kFormat.stride()];
    alignas(16) uint32_t in_offset[kTileRows];  // bytes from the first row of x
    uint32_t out_row[kTileRows];
};

template <WeightType kType, bool kGateUp>
struct Multiplier : PromptTile<kType, kGateUp, kPromptThreads> {
    using Tile = PromptTile<kType, kGateUp, kPromptThreads>;
    using Tile::job, Tile::thread, Tile::lane, Tile::g, Tile::t, Tile::tile, Tile::weight_row;
    using Tile::kFormat, Tile::kFeatures, Tile::kHigh, Tile::low_place;
    static constexpr bool kAny = kFormat.cols == 0;
    static constexpr PromptBuffers kBuffers = Shared<kType>::kBuffers;
    static constexpr uint32_t kStages = kBuffers.stages;
    static constexpr uint32_t kEvery = kAny ? 1 : kFormat.cols / 64;  // stages of a raw piece

    Shared<kType>& shared;
    const uint32_t stages = (job.cols + 63) / 64;

    __device__ Multiplier(const PromptMatmul& matmul, Shared<kType>& memory)
        : Tile(matmul), shared(memory) {}

    // Begins the copies of 64 columns, and of the piece of weights that they open.
    template <uint32_t kPairs>
    __device__ __forceinline__ void bring(uint32_t stage) {
        if (stage < stages) {
            if (stage % kEvery == 0)
                if constexpr (!kAny)
                    this->bring_weights(shared.raw[stage / kEvery % kBuffers.raws], stage / kEvery);
            const uint32_t piece = thread % 8, at = stage * 128 + piece * 16;
            const uint32_t to =
                shared_address(shared.stage[stage % kStages]) + swizzled(thread / 8, piece);
            const std::byte* from = job.x + at;
            const auto* offsets = reinterpret_cast<const uint4*>(shared.in_offset + thread / 8 * 8);
            if (at < job.x_bytes) {
#pragma unroll
                for (uint32_t i = 0; i < kPairs; i += 4) {
                    const uint4 four = offsets[i / 4];
                    const uint32_t offset[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                    for (uint32_t j = 0; j < 4 && i + j < kPairs; ++j)
                        copy_16(to + (i + j) * 16 * 128, from + offset[j]);
                }
            }
        }
        copies_commit();
    }

    // The row of weights that makes the low results of products `m`; the one that makes the high
    // results follows at kHigh. Gate and up of one feature, in the order of rows of activations,
    // or rows g and g + 8.
    __device__ uint32_t low_row(uint32_t m) const {
        return kGateUp ? column_at(low_place(m)) : low_place(m);
    }

    __device__ __forceinline__ OctetOperands operands(uint32_t row, uint32_t stage,
                                                      uint32_t half) const {
        const uint32_t octet = half * 4 + t;
        if constexpr (kAny) {
            float value[8];
            decode_octet(job.type[kGateUp && row >= kFeatures], weight_row(row), stage * 8 + octet,
                         job.cols, value);
            return widen(value);
        } else {
            const uint32_t number = stage / kEvery;
            uint32_t shift = 0;
            if constexpr (kFormat.align < 16)
                shift = reinterpret_cast<uintptr_t>(weight_row(row) + number * kFormat.bytes) % 16;
            return octet_at<kType>(
                shared.raw[number % kBuffers.raws] + row * kFormat.stride() + shift,
                stage % kEvery * 8 + octet);
        }
    }

    template <uint32_t kPairs>
    __device__ __forceinline__ void multiply(float (&sum)[2][2 * kPairs][4]) {
#pragma unroll
        for (uint32_t stage = 0; stage + 1 < kStages; ++stage) bring<kPairs>(stage);
        for (uint32_t stage = 0; stage < stages; ++stage) {
            if constexpr (kStages == 1) {
                __syncthreads();
                bring<kPairs>(stage);
                copies_wait<0>();
                __syncthreads();
            } else {
                copies_wait<kStages - 2>();
                __syncthreads();
                bring<kPairs>(stage + kStages - 1);
            }
            const uint32_t from = shared_address(shared.stage[stage % kStages]);
#pragma unroll
            for (uint32_t half = 0; half < 2; ++half) {
                if (stage * 64 + half * 32 >= job.cols) break;
                OctetOperands low[2], high[2];
#pragma unroll
                for (uint32_t m = 0; m < 2; ++m) {
                    low[m] = operands(low_row(m), stage, half);
                    high[m] = operands(low_row(m) + kHigh, stage, half);
                }
                __syncwarp();
#pragma unroll
                for (uint32_t s = 0; s < 2; ++s)
#pragma unroll
                    for (uint32_t pair = 0; pair < kPairs; ++pair) {
                        uint32_t b[4];
                        load_matrices(b, from + swizzled(pair * 16 + lane / 16 * 8 + lane % 8,
                                                         half * 4 + s * 2 + lane / 8 % 2));
#pragma unroll
                        for (uint32_t m = 0; m < 2; ++m) {
                            const uint32_t a[4] = {low[m].value[s][0], high[m].value[s][0],
                                                   low[m].value[s][1], high[m].value[s][1]};
                            mma_16x8x16(sum[m][2 * pair], a, b[0], b[1]);
                            mma_16x8x16(sum[m][2 * pair + 1], a, b[2], b[3]);
                        }
                    }
            }
        }
        copies_wait<0>();
        __syncthreads();
    }

    // silu(gate) * up, transposed through shared memory.
    template <uint32_t kPairs>
    __device__ __forceinline__ void store_gated(const float (&sum)[2][2 * kPairs][4]) {
        std::byte* out = shared.stage[0];
#pragma unroll
        for (uint32_t m = 0; m < 2; ++m)
#pragma unroll
            for (uint32_t octet = 0; octet < 2 * kPairs; ++octet)
#pragma unroll
                for (uint32_t i = 0; i < 2; ++i) {
                    const float value = Tile::gated(sum[m][octet][i], sum[m][octet][2 + i]);
                    const uint32_t route = octet * 8 + t * 2 + i;
                    *reinterpret_cast<__half*>(out + route * kGatedStride + low_place(m) * 2) =
                        __low2half(as_half2(pack_half2(value, 0)));
                }
        __syncthreads();
        this->copy_gated(out);
    }

    __device__ void run() {
        const uint32_t count = this->tiles();
        for (uint32_t number = blockIdx.x; number < count; number += gridDim.x) {
            this->choose(number);
            const auto rows = this->rows_of(thread);
            __syncthreads();  // all are done with the last tile
            // A thread's rows, every 16th, lie side by side.
            shared.in_offset[thread % 16 * 8 + thread / 16] =
                static_cast<uint32_t>(rows.in * job.x_bytes);
            shared.out_row[thread] = rows.out;
            __syncthreads();
            if (kAny || tile.rows > 64)
                run_tile<8>();
            else if (tile.rows > 32)
                run_tile<4>();
            else
                run_tile<2>();
        }
    }
    template <uint32_t kPairs>
    __device__ __forceinline__ void run_tile() {
        float sum[2][2 * kPairs][4] = {};
        multiply<kPairs>(sum);
        if constexpr (kGateUp)
            store_gated<kPairs>(sum);
        else if (job.half_out)
            this->template store_rows<true>(sum, 0, shared.out_row);
        else
            this->template store_rows<false>(sum, 0, shared.out_row);
    }
};

template <WeightType kType, bool kGateUp>
__device__ __forceinline__ void multiply(const PromptMatmul& job) {
    static_assert(sizeof(Shared<kType>) <= prompt_format(kType).shared(kBefore80));
    extern __shared__ __align__(128) std::byte memory[];
    Multiplier<kType, kGateUp>{job, *reinterpret_cast<Shared<kType>*>(memory)}.run();
}

}  // namespace

#define GRANARY_KERNELS(name, type)                                             \
    extern "C" __global__ void __launch_bounds__(kPromptThreads, kPromptBlocks) \
        prompt_matmul_##name(const __grid_constant__ PromptMatmul job) {        \
        multiply<WeightType::type, false>(job);                                 \
    }                                                                           \
    extern "C" __global__ void __launch_bounds__(kPromptThreads, kPromptBlocks) \
        prompt_gate_up_##name(const __grid_constant__ PromptMatmul job) {       \
        multiply<WeightType::type, true>(job);                                  \
    }
GRANARY_KERNELS(any, f32)
GRANARY_KERNELS(q4_k, q4_k)
GRANARY_KERNELS(q5_k, q5_k)
GRANARY_KERNELS(q6_k, q6_k)
GRANARY_KERNELS(q8_0, q8_0)
GRANARY_KERNELS(q5_0, q5_0)
GRANARY_KERNELS(q5_1, q5_1)
GRANARY_KERNELS(q4_0, q4_0)
GRANARY_KERNELS(iq4_xs, iq4_xs)
GRANARY_KERNELS(iq4_nl, iq4_nl)
GRANARY_KERNELS(mxfp4, mxfp4)
GRANARY_KERNELS(f16, f16)
GRANARY_KERNELS(bf16, bf16)

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Matrix products of prompts by 8-bit tensor-core products, for cards that do products of f16 with
// f32 sums at half their rate (matmul.cpp): dense matrices, and experts over tiles of sorted
// routes.
//
// Codes of 32 columns are multiplied as integers, then scaled into f32 sums, group by group in the
// order of columns:
//   sum += weight scale * activation scale * (product of codes)
//   sum -= weight minimum * activation sum                          types with a minimum
// Experts take the coarse codes of activations (int8_rows.h), dense matrices coarse and fine ones.
//
// A block of eight warps makes a tile (prompt_tile.cuh): four along its weight rows, 32 each, twice
// along its activations, up to 64 each.
//
// For 16 x 8 results and 32 columns: a tensor-core product, 16 cycles of a quarter of a
// multiprocessor of 8.6, 8.9 and 12.0 (64 in f16 with f32 sums); 12 instructions to convert and
// scale it (16 with minimums, 20 and a second product with two scales); about 8 for weights, loads
// and copies. With fine codes: twice the products, 20 (24, 36) instructions.
//
// Measured on an H200, one block a multiprocessor as shared memory has it on those cards: experts
// in Q4_K, Q8_0, Q6_K at 160, 162, 124 TOP/s, which is 51, 50, 66 cycles: a gain where f16 needs 64
// at the least. Dense matrices at 103, 108, 74 (counted as if there were one code a value), 80 to
// 115 cycles: none. Nor has the H200 any, whose 8-bit mma.sync makes 776 at most and that of f16
// 640: matmul_prompt.cu makes 242 there.
#include "gpu/cuda/int8_rows.cuh"
#include "gpu/cuda/int8_weights.cuh"
#include "gpu/cuda/matmul.h"
#include "gpu/cuda/portable.h"
#include "gpu/cuda/prompt_tile.cuh"

namespace granary::gpu::cuda {
namespace {

template <WeightType kType>
struct Shared {
    static constexpr Int8Format kFormat = int8_format(kType);
    static constexpr PromptBuffers kBuffers = kFormat.buffers(kBefore80);
    alignas(128) std::byte stage[kBuffers.stages][kTileRows * kInt8Stride];
    std::byte raw[kBuffers.raws][kFormat.weights.raw()];
    alignas(16) std::byte spread[kFormat.spread ? kPromptRows * Int8Format::kSpreadStride : 16];
    uint32_t out_row[kTileRows];
};

// From 8.6 on a conversion is one instruction beside those of f32; before, sums start from raised
// bits (int8_rows.cuh). Both are exact.
constexpr bool kConverts = GRANARY_CUDA_ARCH >= 860;
constexpr int32_t kStart = kConverts ? 0 : kRaisedBits;

// As mma.cuh has it, but other loads may pass: the memory is a stage's, behind a barrier.
__device__ __forceinline__ void load_codes(uint32_t (&out)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address));
}

// What 32 columns of a thread's two weight rows are multiplied with: [low, high].
struct RowCodes {
    uint32_t code[2][2];
    float2 scale[2];
};

template <WeightType kType, bool kGateUp, bool kFine>
struct Multiplier : PromptTile<kType, kGateUp, kInt8Threads> {
    using Tile = PromptTile<kType, kGateUp, kInt8Threads>;
    using Tile::job, Tile::thread, Tile::lane, Tile::g, Tile::t, Tile::tile, Tile::feature;
    using Tile::kFormat, Tile::kHigh, Tile::low_place;
    using Weights = Int8Weights<kType>;
    static constexpr PromptBuffers kBuffers = Shared<kType>::kBuffers;
    static constexpr uint32_t kStages = kBuffers.stages;
    static constexpr uint32_t kCols = kFine ? 32 : 64;        // of a stage
    static constexpr uint32_t kEvery = kFormat.cols / kCols;  // stages of a raw piece
    static constexpr uint32_t kScaleBytes = kCols / 32 * sizeof(Int8Scale);

    Shared<kType>& shared;
    const uint32_t stages = (job.cols + kCols - 1) / kCols;
    const uint32_t code_bytes = int8_code_bytes(job.cols, kFine);
    const uint32_t side = thread / 128;  // of the tile's activations
    const std::byte* in = nullptr;       // the row of activations that this thread helps to bring
    uint32_t starts = 0;                 // of its weight rows, modulo 16: a byte each

    __device__ Multiplier(const PromptMatmul& matmul, Shared<kType>& memory)
        : Tile(matmul), shared(memory) {}

    // Begins the copies of a stage, and of the piece of weights that it opens: two threads a row.
    template <uint32_t kPairs>
    __device__ __forceinline__ void bring(uint32_t stage) {
        if (stage < stages) {
            if (stage % kEvery == 0)
                this->bring_weights(shared.raw[stage / kEvery % kBuffers.raws], stage / kEvery);
            const uint32_t row = thread / 2, at = stage * 64 + thread % 2 * 32;
            const uint32_t to = shared_address(shared.stage[stage % kStages]) + row * kInt8Stride;
            if (row < kPairs * 16) {
                if (at < code_bytes) {
                    copy_16(to + thread % 2 * 32, in + at);
                    copy_16(to + thread % 2 * 32 + 16, in + at + 16);
                }
                if (thread % 2 == 0) {
                    const std::byte* const scales = in + code_bytes + stage * kScaleBytes;
                    if constexpr (kFine)
                        copy_small<8>(to + 64, scales);
                    else
                        copy_16(to + 64, scales);
                }
            }
        }
        copies_commit();
    }

    __device__ __forceinline__ RawPiece piece_of(uint32_t row, uint32_t number,
                                                 uint32_t start) const {
        uint32_t shift = 0;
        if constexpr (kFormat.align < 16) shift = (start + number * kFormat.bytes) % 16;
        return {shared.raw[number % kBuffers.raws], row * kFormat.stride() + shift};
    }
    __device__ uint32_t start_of(uint32_t row) const {
        return reinterpret_cast<uintptr_t>(this->weight_row(row)) % 16;
    }
    // Scales of piece `number`, for all warps: a thread has four groups of a row.
    __device__ __forceinline__ void spread_scales(uint32_t number) {
        const uint32_t row = thread / 2, half = thread % 2;
        float2 scales[4];
        Weights::spread(piece_of(row, number, kFormat.align < 16 ? start_of(row) : 0).bytes(), half,
                        scales);
        auto* const to =
            reinterpret_cast<float4*>(shared.spread + row * Int8Format::kSpreadStride + half * 32);
        to[0] = {scales[0].x, scales[0].y, scales[1].x, scales[1].y};
        to[1] = {scales[2].x, scales[2].y, scales[3].x, scales[3].y};
    }
    __device__ __forceinline__ RowCodes codes_of(uint32_t m, uint32_t number,
                                                 uint32_t group) const {
        RowCodes out;
#pragma unroll
        for (uint32_t high = 0; high < 2; ++high) {
            const uint32_t row = low_place(m) + high * kHigh;
            const RawPiece piece = piece_of(row, number, starts >> (8 * (2 * m + high)) & 15);
            const uint2 codes = Weights::codes(piece, group, t);
            out.code[high][0] = codes.x;
            out.code[high][1] = codes.y;
            if constexpr (Weights::kSpread)
                out.scale[high] = *reinterpret_cast<const float2*>(
                    shared.spread + row * Int8Format::kSpreadStride + group * 8);
            else
                out.scale[high] = Weights::scales(piece, group);
        }
        return out;
    }

    // The products of 16 columns (kHalves), or of all 32 for half 0, as f32.
    struct Products {
        float value[4];
    };
    __device__ __forceinline__ static Products product(const RowCodes& rows, uint32_t half,
                                                       uint32_t low, uint32_t high) {
        int32_t sum[4] = {kStart, kStart, kStart, kStart};
        if constexpr (Weights::kHalves) {
            const uint32_t a[2] = {rows.code[0][half], rows.code[1][half]};
            mma_16x8x16(sum, a, half ? high : low);
        } else {
            const uint32_t a[4] = {rows.code[0][0], rows.code[1][0], rows.code[0][1],
                                   rows.code[1][1]};
            mma_16x8x32(sum, a, low, high);
        }
        Products out;
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i)
            out.value[i] =
                kConverts ? __int2float_rn(sum[i]) : __fsub_rn(__int_as_float(sum[i]), kRaised);
        return out;
    }
    // b: the columns of eight activations, coarse ones and fine ones: [low, high 16].
    __device__ __forceinline__ static void fold(float (&sum)[4], const RowCodes& rows,
                                                const uint32_t (&b)[2][2],
                                                const Int8Scale (&scale)[2]) {
        constexpr uint32_t kParts = Weights::kHalves ? 2 : 1;
        Products part[kParts];
#pragma unroll
        for (uint32_t p = 0; p < kParts; ++p) {
            part[p] = product(rows, p, b[0][0], b[0][1]);
            if constexpr (kFine) {
                const Products fine = product(rows, p, b[1][0], b[1][1]);
#pragma unroll
                for (uint32_t i = 0; i < 4; ++i)
                    part[p].value[i] = fmaf(fine.value[i], 1 / kFineSteps, part[p].value[i]);
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            const float2 weight = rows.scale[i / 2];
            const Int8Scale& in = scale[i % 2];
            if constexpr (Weights::kHalves) {
                const float first = __fmul_rn(part[0].value[i], weight.x);
                sum[i] = fmaf(fmaf(part[kParts - 1].value[i], weight.y, first), in.scale, sum[i]);
            } else {
                sum[i] = fmaf(part[0].value[i], __fmul_rn(weight.x, in.scale), sum[i]);
                if constexpr (Weights::kMinimum) sum[i] = fmaf(-weight.y, in.sum, sum[i]);
            }
        }
    }

    // 32 columns: number `half` of the stage.
    template <uint32_t kPairs>
    __device__ __forceinline__ void multiply_group(uint32_t stage, uint32_t half,
                                                   float (&sum)[2][kPairs][4]) {
        const uint32_t number = stage / kEvery;
        const uint32_t group = stage % kEvery * (kCols / 32) + half;
        RowCodes rows[2];
#pragma unroll
        for (uint32_t m = 0; m < 2; ++m) rows[m] = codes_of(m, number, group);
        const std::byte* const from =
            shared.stage[stage % kStages] + side * (kPairs * 8) * kInt8Stride;
        const uint32_t matrices =
            shared_address(from) + (lane / 16 * 8 + lane % 8) * kInt8Stride + lane / 8 % 2 * 16;
#pragma unroll
        for (uint32_t pair = 0; pair < kPairs / 2; ++pair) {
            uint32_t coarse[4], fine[4] = {};
            load_codes(coarse, matrices + pair * 16 * kInt8Stride + half * 32);
            if constexpr (kFine) load_codes(fine, matrices + pair * 16 * kInt8Stride + 32);
#pragma unroll
            for (uint32_t of = 0; of < 2; ++of) {
                const uint32_t octet = pair * 2 + of;
                Int8Scale scale[2];
#pragma unroll
                for (uint32_t i = 0; i < 2; ++i) {
                    const float2 both = *reinterpret_cast<const float2*>(
                        from + (octet * 8 + t * 2 + i) * kInt8Stride + 64 + half * 8);
                    scale[i] = {both.x, both.y};
                }
                const uint32_t b[2][2] = {{coarse[2 * of], coarse[2 * of + 1]},
                                          {fine[2 * of], fine[2 * of + 1]}};
#pragma unroll
                for (uint32_t m = 0; m < 2; ++m) fold(sum[m][octet], rows[m], b, scale);
            }
        }
    }

    template <uint32_t kPairs>
    __device__ __forceinline__ void multiply(float (&sum)[2][kPairs][4]) {
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
            if (Weights::kSpread && stage % kEvery == 0) {
                if constexpr (Weights::kSpread) spread_scales(stage / kEvery);
                __syncthreads();
            }
            multiply_group<kPairs>(stage, 0, sum);
            if (!kFine && stage * kCols + 32 < job.cols) multiply_group<kPairs>(stage, 1, sum);
        }
        copies_wait<0>();
        __syncthreads();
    }

    // silu(gate) * up, transposed through shared memory: coarse codes of each 32, or f16 in the
    // order of ordered rows.
    template <uint32_t kPairs>
    __device__ __forceinline__ void store_gated(const float (&sum)[2][kPairs][4]) {
        auto* const memory = reinterpret_cast<std::byte*>(&shared);
        auto* const values = reinterpret_cast<float*>(memory);
#pragma unroll
        for (uint32_t m = 0; m < 2; ++m)
#pragma unroll
            for (uint32_t octet = 0; octet < kPairs; ++octet)
#pragma unroll
                for (uint32_t i = 0; i < 2; ++i) {
                    const float value = Tile::gated(sum[m][octet][i], sum[m][octet][2 + i]);
                    const uint32_t route = (side * kPairs + octet) * 8 + t * 2 + i;
                    const uint32_t place = low_place(m);
                    if (job.int8_out)
                        values[route * Int8Format::kGatedFloats + place] = value;
                    else
                        *reinterpret_cast<__half*>(memory + route * kGatedStride +
                                                   ordered_column(place) * 2) =
                            __low2half(as_half2(pack_half2(value, 0)));
                }
        __syncthreads();
        if (!job.int8_out) return this->copy_gated(memory);
        const uint32_t route = thread / 2, group = thread % 2;
        if (route >= tile.rows || feature + group * 32 >= job.features) return;
        float value[32];
        const auto* from =
            reinterpret_cast<const float4*>(values + route * Int8Format::kGatedFloats + group * 32);
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) {
            const float4 four = from[i];
            value[4 * i] = four.x, value[4 * i + 1] = four.y;
            value[4 * i + 2] = four.z, value[4 * i + 3] = four.w;
        }
        store_group<false>(static_cast<std::byte*>(job.out) + (tile.first + route) * job.out_bytes,
                           job.features, feature / 32 + group, int8_group<false>(value));
    }

    __device__ void run() {
        const uint32_t count = this->tiles();
        for (uint32_t number = blockIdx.x; number < count; number += gridDim.x) {
            this->choose(number);
            const auto rows = this->rows_of(thread / 2);
            in = job.x + rows.in * job.x_bytes;
            if constexpr (kFormat.align < 16) {
                starts = 0;
#pragma unroll
                for (uint32_t i = 0; i < 4; ++i)
                    starts |= start_of(low_place(i / 2) + i % 2 * kHigh) << (8 * i);
            }
            __syncthreads();  // all are done with the last tile
            if (!kGateUp && thread % 2 == 0) shared.out_row[thread / 2] = rows.out;
            __syncthreads();
            if (tile.rows > 64)
                run_tile<8>();
            else if (tile.rows > 32)
                run_tile<4>();
            else
                run_tile<2>();
        }
    }
    template <uint32_t kPairs>
    __device__ __forceinline__ void run_tile() {
        float sum[2][kPairs][4] = {};
        multiply<kPairs>(sum);
        if constexpr (kGateUp)
            store_gated<kPairs>(sum);
        else  // dense matrices leave f32, experts f16
            this->template store_rows<!kFine>(sum, side * kPairs * 8, shared.out_row);
    }
};

template <WeightType kType, bool kGateUp, bool kFine>
__device__ __forceinline__ void multiply(const PromptMatmul& job) {
    static_assert(sizeof(Shared<kType>) <= int8_format(kType).shared(kBefore80));
    extern __shared__ __align__(128) std::byte memory[];
    Multiplier<kType, kGateUp, kFine>{job, *reinterpret_cast<Shared<kType>*>(memory)}.run();
}

template <bool kFine>
__device__ __forceinline__ void make_group(const Int8Rows& job, uint32_t row, uint32_t group) {
    const auto* from = reinterpret_cast<const uint4*>(job.from + row * job.from_bytes + group * 64);
    float value[32];
#pragma unroll
    for (uint32_t s = 0; s < 2; ++s)
#pragma unroll
        for (uint32_t h = 0; h < 2; ++h) {
            const uint4 piece = from[2 * s + h];
            const uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
            for (uint32_t t = 0; t < 4; ++t) {
                const float2 pair = __half22float2(as_half2(words[t]));
                value[8 * t + 4 * s + h] = pair.x;
                value[8 * t + 4 * s + 2 + h] = pair.y;
            }
        }
    store_group<kFine>(job.to + row * job.to_bytes, job.cols, group, int8_group<kFine>(value));
}

}  // namespace

// Grid: (rows * groups / kInt8Threads). Bytes: 2 read, 1.25 (fine 2.25) written a value.
extern "C" __global__ void __launch_bounds__(kInt8Threads)
    prompt_int8_rows(const __grid_constant__ Int8Rows job) {
    const uint32_t groups = job.cols / 32, number = blockIdx.x * kInt8Threads + threadIdx.x;
    const uint32_t row = number / groups, group = number % groups;
    if (row >= job.rows) return;
    if (job.fine)
        make_group<true>(job, row, group);
    else
        make_group<false>(job, row, group);
}

#define GRANARY_KERNELS(type)                                           \
    extern "C" __global__ void __launch_bounds__(kInt8Threads, 1)       \
        int8_dense_##type(const __grid_constant__ PromptMatmul job) {   \
        multiply<WeightType::type, false, true>(job);                   \
    }                                                                   \
    extern "C" __global__ void __launch_bounds__(kInt8Threads, 1)       \
        int8_gate_up_##type(const __grid_constant__ PromptMatmul job) { \
        multiply<WeightType::type, true, false>(job);                   \
    }                                                                   \
    extern "C" __global__ void __launch_bounds__(kInt8Threads, 1)       \
        int8_down_##type(const __grid_constant__ PromptMatmul job) {    \
        multiply<WeightType::type, false, false>(job);                  \
    }
GRANARY_KERNELS(q4_k)
GRANARY_KERNELS(q6_k)
GRANARY_KERNELS(q8_0)

}  // namespace granary::gpu::cuda

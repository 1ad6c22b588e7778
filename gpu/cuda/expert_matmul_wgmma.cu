// SPDX-License-Identifier: GPL-3.0-or-later
// Expert matmuls of prompts for compute capability 9.0a.
//
// A block makes 256 weight rows x up to 128 routes: four warpgroups hold 64 weight rows each and
// share the routes' activations in shared memory; a fifth brings both by asynchronous copies and
// runs ahead, into the next tile too. Weights are the register operand: widened from their blocks
// by the warpgroup that needs them, while the tensor cores work on the 32 columns before and for
// the other three.
//
// For a tile of 256 x 128 and 64 columns: 4.2 MFLOP = 1,024 cycles of the tensor cores; 16 KB of
// activations and 9 KB of Q4_K from L2 (25 bytes a cycle, the reason for 256 rows); 110
// instructions a thread to widen (4 x 110 = 440 of 1,024 issue slots). Shared memory: 64 bytes a
// cycle read by the tensor cores, 25 written, 10 of blocks read.
//
// Measured on an H200 with 4,096 tokens of Qwen3-30B: 536 TFLOP/s for gate and up, 59 % of what
// limit_wgmma reached beside it. The rest: rows that fill tiles up (7 %), waiting for activations
// and at the ends of blocks, and instructions of other warps that hold up the tensor cores'
// register reads.
#include "gpu/cuda/expert_copies.cuh"
#include "gpu/cuda/expert_matmul.h"
#include "gpu/cuda/fragments.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "gpu/cuda/wgmma.cuh"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kGroups = 4;                    // warpgroups that multiply
constexpr uint32_t kRows = 64 * kGroups;           // weight rows of a tile
constexpr uint32_t kStageBytes = kTileRows * 128;  // 64 columns of activations
constexpr uint32_t kRawStages = 2;                 // blocks of Format::kColumns
constexpr uint32_t kCopiers = 64;                  // of weights, and as many of activations
constexpr uint32_t kThreads = 128 * kGroups + 2 * kCopiers;
constexpr uint32_t kOutRows = 16;               // routes that a warpgroup stores at a time
constexpr uint32_t kOutBytes = kOutRows * 144;  // of 64 results, with padding

struct TileInfo {
    uint32_t first, rows, feature;
};

template <class Format>
struct Shared {
    // As many as fit, so that a warpgroup may be ahead of the others.
    static constexpr uint32_t kStages = Format::kStride <= 160 ? 8 : 6;
    // Pairs of stages whose copies may be under way behind the newest.
    static constexpr uint32_t kBehind = 1;
    // A stage is released when the next one has come, and a pair is told of kBehind pairs late.
    static_assert(kStages / 2 >= kBehind + 2);
    // Tiles that are described at a time: of 512 columns or more, that is eight stages or more.
    static constexpr uint32_t kTileSlots = kStages < 8 ? 2 : 3;
    alignas(1024) std::byte stage[kStages][kStageBytes];
    std::byte raw[kRawStages][kRows * Format::kStride];
    std::byte out[kGroups][kOutBytes];
    uint32_t out_row[kTileSlots][kTileRows];
    InRows<kCopiers> in_row;
    TileInfo tile[kTileSlots];
    uint64_t full[kStages], empty[kStages], raw_full[kRawStages], raw_empty[kRawStages];
};

// Position in a ring of kSlots: the slot, and the parity of its phase.
template <uint32_t kSlots>
struct Ring {
    uint32_t slot = 0, parity = 0;
    __device__ void advance() {
        if (++slot == kSlots) slot = 0, parity ^= 1;
    }
};

// Half of the fifth warpgroup: brings blocks of weights.
template <class Format, bool kGateUp>
__device__ void bring_weights(const ExpertMatmul& job, Shared<Format>& shared, uint32_t tiles) {
    constexpr uint32_t kFeatures = kGateUp ? kRows / 2 : kRows;
    const uint32_t across = (job.features + kFeatures - 1) / kFeatures;
    const uint32_t blocks = job.cols / Format::kColumns, row_bytes = blocks * Format::kBlockBytes;
    const uint32_t thread = threadIdx.x % kCopiers;
    Ring<kRawStages> raw;
    for (uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const ExpertEntry entry = job.entries[job.tiles[tile / across].expert];
        const uint32_t feature = tile % across * kFeatures;
        const uint32_t rows = min(job.features - feature, kFeatures);
        size_t at = size_t{feature} * row_bytes;
        for (uint32_t block = 0; block < blocks; ++block, at += Format::kBlockBytes) {
            barrier_wait(shared_address(&shared.raw_empty[raw.slot]), raw.parity ^ 1);
            const uint32_t to = shared_address(shared.raw[raw.slot]);
            copy_blocks<Format, kCopiers>(to, (kGateUp ? entry.gate : entry.down) + at, row_bytes,
                                          rows, thread);
            if (kGateUp)
                copy_blocks<Format, kCopiers>(to + kFeatures * Format::kStride, entry.up + at,
                                              row_bytes, rows, thread);
            barrier_arrive_copied(shared_address(&shared.raw_full[raw.slot]));
            raw.advance();
        }
    }
    copies_commit();
    copies_wait<0>();
}

// The other half: brings activations, and what the multipliers need to know of a tile.
template <class Format, bool kGateUp>
class ActivationBringer {
  public:
    __device__ ActivationBringer(const ExpertMatmul& job, Shared<Format>& shared)
        : job_(job), shared_(shared) {}

    __device__ void run(uint32_t tiles) {
        constexpr uint32_t kFeatures = kGateUp ? kRows / 2 : kRows;
        const uint32_t across = (job_.features + kFeatures - 1) / kFeatures;
        uint32_t number = 0;
        for (uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x, ++number) {
            const ExpertTile at = job_.tiles[tile / across];
            begin_tile(at, tile % across * kFeatures, number % Shared<Format>::kTileSlots);
            switch ((at.rows + 15) / 16) {
                case 1:
                    bring<16>();
                    break;
                case 2:
                    bring<32>();
                    break;
                case 3:
                    bring<48>();
                    break;
                case 4:
                    bring<64>();
                    break;
                case 5:
                    bring<80>();
                    break;
                case 6:
                    bring<96>();
                    break;
                case 7:
                    bring<112>();
                    break;
                default:
                    bring<128>();
                    break;
            }
        }
        copies_wait<0>();
        for (uint32_t i = 0; i < min(issued_, Shared<Format>::kBehind); ++i) stages_ready();
    }

  private:
    __device__ void begin_tile(const ExpertTile& at, uint32_t feature, uint32_t slot) {
        const uint32_t rows = at.rows;
        uint32_t route[2];
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i)
            route[i] = job_.order[at.first + min(thread_ + i * kCopiers, rows - 1)];
        named_barrier(1, kCopiers);  // all have read the last tile's in_row
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i) {
            const uint32_t row = thread_ + i * kCopiers;
            const uint32_t from = kGateUp ? route[i] / job_.used : at.first + min(row, rows - 1);
            shared_.in_row.set(row, from * job_.cols * 2);
            shared_.out_row[slot][row] = route[i];
        }
        if (thread_ == 0) shared_.tile[slot] = {static_cast<uint32_t>(at.first), rows, feature};
        named_barrier(1, kCopiers);
    }
    // Two stages at a time: an address serves both.
    template <uint32_t kColumns>
    __device__ void bring() {
        const auto* from = static_cast<const std::byte*>(job_.x);
        for (uint32_t i = 0; i < job_.cols / 128; ++i, from += 256) {
            const uint32_t one = begin_stage(), two = begin_stage();
            copy_activations<kCopiers>(one, two, from,
                                       shared_.in_row.template of<kColumns>(thread_), thread_);
            copies_commit();
            if (++issued_ > Shared<Format>::kBehind) {
                copies_wait<Shared<Format>::kBehind>();
                stages_ready();
            }
        }
    }
    __device__ uint32_t begin_stage() {
        barrier_wait(shared_address(&shared_.empty[stage_.slot]), stage_.parity ^ 1);
        const uint32_t to = shared_address(shared_.stage[stage_.slot]);
        stage_.advance();
        return to;
    }
    __device__ void stages_ready() {
        fence_for_async();
        __syncwarp();
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i) {
            if (thread_ % 32 == 0) barrier_arrive(shared_address(&shared_.full[ready_.slot]));
            ready_.advance();
        }
    }

    const ExpertMatmul& job_;
    Shared<Format>& shared_;
    const uint32_t thread_ = threadIdx.x % kCopiers;
    Ring<Shared<Format>::kStages> stage_, ready_;
    uint32_t issued_ = 0;
};

template <class Format, bool kGateUp>
class Multiplier {
  public:
    __device__ Multiplier(const ExpertMatmul& job, Shared<Format>& shared)
        : job_(job), shared_(shared) {}

    __device__ void run(uint32_t tiles) {
        uint32_t number = 0;
        for (uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x, ++number) {
            barrier_wait(shared_address(&shared_.full[stage_.slot]), stage_.parity);
            slot_ = number % Shared<Format>::kTileSlots;
            tile_ = shared_.tile[slot_];
            switch ((tile_.rows + 15) / 16) {
                case 1:
                    return_of<16>();
                    break;
                case 2:
                    return_of<32>();
                    break;
                case 3:
                    return_of<48>();
                    break;
                case 4:
                    return_of<64>();
                    break;
                case 5:
                    return_of<80>();
                    break;
                case 6:
                    return_of<96>();
                    break;
                case 7:
                    return_of<112>();
                    break;
                default:
                    return_of<128>();
                    break;
            }
        }
    }

  private:
    template <uint32_t kColumns>
    __device__ void return_of() {
        float sum[kColumns / 2];
#pragma unroll
        for (float& value : sum) value = 0;
        multiply<kColumns>(sum);
        if constexpr (kGateUp)
            store_gated<kColumns>(sum);
        else
            store_half<kColumns>(sum);
    }

    template <uint32_t kColumns>
    __device__ void multiply(float (&sum)[kColumns / 2]) {
        constexpr uint32_t kPerBlock = Format::kColumns / 64;  // of 64 columns
        const uint32_t row_bytes = job_.cols / Format::kColumns * Format::kBlockBytes;
        // This thread's two rows among the raw blocks: gate and up of one feature, taken in the
        // order in which the results are to lie, or rows g and g + 8 of down.
        const uint32_t low =
            kGateUp ? group_ * 32 + column_at(warp_ * 8 + g_) : group_ * 64 + warp_ * 16 + g_;
        const uint32_t high = low + (kGateUp ? kRows / 2 : 8);
        uint32_t low_at = 0, high_at = 0, last_slot = 0;
        if constexpr (!Format::kAligned) {
            low_at = (tile_.feature + low) * row_bytes;
            high_at = (tile_.feature + high % (kGateUp ? kRows / 2 : kRows)) * row_bytes;
        }
        // Each 32 columns are widened while the products of the 32 before are under way.
        uint32_t a[2][2][4];
        for (uint32_t columns = 0; columns < job_.cols; columns += 256) {
#pragma unroll
            for (uint32_t quarter = 0; quarter < 4; ++quarter) {
                const uint32_t in_block = quarter % kPerBlock;
                if (in_block == 0)
                    barrier_wait(shared_address(&shared_.raw_full[raw_.slot]), raw_.parity);
                const std::byte* const raw = shared_.raw[raw_.slot];
                barrier_wait(shared_address(&shared_.full[stage_.slot]), stage_.parity);
                const auto one =
                    Format::load(raw + low * Format::kStride, low_at % 16, in_block, t_);
                const auto two =
                    Format::load(raw + high * Format::kStride, high_at % 16, in_block, t_);
                if (in_block == kPerBlock - 1) {
                    release(&shared_.raw_empty[raw_.slot]);
                    raw_.advance();
                    low_at += Format::kBlockBytes;
                    high_at += Format::kBlockBytes;
                }
                const uint64_t b = operand(shared_address(shared_.stage[stage_.slot]));
#pragma unroll
                for (uint32_t half = 0; half < 2; ++half) {
                    const RowOperands low_row = Format::widen(one, half);
                    const RowOperands high_row = Format::widen(two, half);
#pragma unroll
                    for (uint32_t i = 0; i < 8; ++i)
                        a[half][i / 4][i % 4] =
                            (i % 2 ? high_row : low_row).value[i / 4][i / 2 % 2];
                    products_begin();
                    Product<kColumns>::registers(sum, a[half][0], b + half * 4);
                    Product<kColumns>::registers(sum, a[half][1], b + half * 4 + 2);
                    products_commit();
                    // None under way from one round of a loop to the next: the compiler would wait
                    // after each.
                    if (quarter == 3 && half == 1)
                        products_wait<0>();
                    else
                        products_wait<1>();
                    // The stage before this one has been used.
                    if (half == 0 && quarter > 0) release(&shared_.empty[last_slot]);
                }
                last_slot = stage_.slot;
                stage_.advance();
            }
            hold(sum);
            release(&shared_.empty[last_slot]);
        }
    }

    __device__ void release(uint64_t* barrier) const {
        __syncwarp();
        if (lane_ == 0) barrier_arrive(shared_address(barrier));
    }
    __device__ void group_barrier() const {
        named_barrier(2 + group_, 128);
    }

    // silu(gate) * up: transposed through shared memory, 64 bytes a route and warpgroup.
    template <uint32_t kColumns>
    __device__ void store_gated(const float (&sum)[kColumns / 2]) {
        constexpr uint32_t kStride = 80;
        const uint32_t feature = tile_.feature + group_ * 32;
        std::byte* const out = shared_.out[group_];
#pragma unroll
        for (uint32_t start = 0; start < kColumns; start += kOutRows) {
            uint32_t value[2];
#pragma unroll
            for (uint32_t j = 0; j < 2; ++j) {
                const uint32_t at = start / 2 + 4 * j;
                value[j] = pack_half2(gated(sum[at], sum[at + 2]), gated(sum[at + 1], sum[at + 3]));
            }
            group_barrier();
            store_matrices_transposed(shared_address(out) + lane_ % 16 * kStride + warp_ * 16,
                                      value);
            group_barrier();
            const uint32_t row = start + threadIdx.x % 128 / 4, piece = threadIdx.x % 4;
            if (row < min(tile_.rows, start + kOutRows) && feature < job_.features)
                *reinterpret_cast<uint4*>(
                    static_cast<std::byte*>(job_.out) +
                    (size_t{tile_.first + row} * job_.features + feature) * 2 + piece * 16) =
                    *reinterpret_cast<const uint4*>(out + (row - start) * kStride + piece * 16);
        }
    }
    __device__ static float gated(float gate, float up) {
        return __fdividef(gate, 1 + __expf(-gate)) * up;
    }

    // Transposed through shared memory, 128 bytes a route and warpgroup.
    template <uint32_t kColumns>
    __device__ void store_half(const float (&sum)[kColumns / 2]) {
        constexpr uint32_t kStride = 144;
        const uint32_t feature = tile_.feature + group_ * 64;
        const uint32_t pieces = feature < job_.features ? min(job_.features - feature, 64u) / 8 : 0;
        std::byte* const out = shared_.out[group_];
#pragma unroll
        for (uint32_t start = 0; start < kColumns; start += kOutRows) {
            uint32_t value[4];
#pragma unroll
            for (uint32_t j = 0; j < 4; ++j) {
                const uint32_t at = start / 2 + j / 2 * 4 + j % 2 * 2;
                value[j] = pack_half2(sum[at], sum[at + 1]);
            }
            group_barrier();
            store_matrices_transposed(shared_address(out) + (lane_ / 16 * 8 + lane_ % 8) * kStride +
                                          warp_ * 32 + lane_ / 8 % 2 * 16,
                                      value);
            group_barrier();
            const uint32_t row = start + threadIdx.x % 128 / 8, piece = threadIdx.x % 8;
            if (row < tile_.rows && piece < pieces)
                *reinterpret_cast<uint4*>(
                    static_cast<std::byte*>(job_.out) +
                    (size_t{shared_.out_row[slot_][row]} * job_.features + feature + piece * 8) *
                        2) =
                    *reinterpret_cast<const uint4*>(out + (row - start) * kStride + piece * 16);
        }
    }

    const ExpertMatmul& job_;
    Shared<Format>& shared_;
    Ring<Shared<Format>::kStages> stage_;
    Ring<kRawStages> raw_;
    TileInfo tile_;
    uint32_t slot_ = 0;
    const uint32_t lane_ = threadIdx.x % 32, g_ = lane_ / 4, t_ = lane_ % 4;
    const uint32_t warp_ = threadIdx.x / 32 % 4, group_ = threadIdx.x / 128;
};

template <class Format, bool kGateUp>
__device__ void expert_matmul(const ExpertMatmul& job) {
    extern __shared__ __align__(1024) std::byte memory[];
    auto& shared = *reinterpret_cast<Shared<Format>*>(memory);
    if (threadIdx.x == 0) {
        for (uint64_t& barrier : shared.full) barrier_init(shared_address(&barrier), kCopiers / 32);
        for (uint64_t& barrier : shared.empty) barrier_init(shared_address(&barrier), 4 * kGroups);
        for (uint64_t& barrier : shared.raw_full) barrier_init(shared_address(&barrier), kCopiers);
        for (uint64_t& barrier : shared.raw_empty)
            barrier_init(shared_address(&barrier), 4 * kGroups);
        barrier_init_done();
    }
    __syncthreads();
    constexpr uint32_t kFeatures = kGateUp ? kRows / 2 : kRows;
    const uint32_t across = (job.features + kFeatures - 1) / kFeatures;
    const uint32_t tiles = static_cast<uint32_t>(*job.tile_count) * across;
    if (threadIdx.x >= 128 * kGroups) {
        fewer_registers<32>();
        if (threadIdx.x < 128 * kGroups + kCopiers)
            bring_weights<Format, kGateUp>(job, shared, tiles);
        else
            ActivationBringer<Format, kGateUp>(job, shared).run(tiles);
    } else {
        more_registers<112>();
        Multiplier<Format, kGateUp>(job, shared).run(tiles);
    }
}

}  // namespace

static_assert(kExpertWgmma.threads == kThreads && kExpertWgmma.shared_q4_k == sizeof(Shared<Q4K>) &&
              kExpertWgmma.shared_q5_k == sizeof(Shared<Q5K>) &&
              kExpertWgmma.shared_q6_k == sizeof(Shared<Q6K>) &&
              kExpertWgmma.shared_q8_0 == sizeof(Shared<Q80>));

#define GRANARY_KERNEL(name, format, gate_up)                 \
    extern "C" __global__ void __launch_bounds__(kThreads, 1) \
        name(const __grid_constant__ ExpertMatmul job) {      \
        expert_matmul<format, gate_up>(job);                  \
    }
GRANARY_KERNEL(expert_gate_up_wgmma_q4_k, Q4K, true)
GRANARY_KERNEL(expert_gate_up_wgmma_q5_k, Q5K, true)
GRANARY_KERNEL(expert_gate_up_wgmma_q6_k, Q6K, true)
GRANARY_KERNEL(expert_gate_up_wgmma_q8_0, Q80, true)
GRANARY_KERNEL(expert_down_wgmma_q4_k, Q4K, false)
GRANARY_KERNEL(expert_down_wgmma_q5_k, Q5K, false)
GRANARY_KERNEL(expert_down_wgmma_q6_k, Q6K, false)
GRANARY_KERNEL(expert_down_wgmma_q8_0, Q80, false)
#undef GRANARY_KERNEL

}  // namespace granary::gpu::cuda
#endif

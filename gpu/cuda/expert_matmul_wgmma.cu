// SPDX-License-Identifier: GPL-3.0-or-later
// Expert matmuls of prompts for compute capability 9.0a.
//
// A block makes 256 weight rows x up to 128 routes: four warpgroups hold 64 weight rows each and
// share the routes' activations in shared memory; a fifth brings both by asynchronous copies and
// runs ahead, into the next tile too. Weights are the register operand: widened from their blocks
// by the warpgroup that needs them, while the tensor cores work for the other three.
//
// For a tile of 256 x 128 and 64 columns: 4.2 MFLOP = 1,024 cycles of the tensor cores; 16 KB of
// activations and 9 KB of Q4_K from L2 (25 bytes a cycle, the reason for 256 rows); 95 instructions
// a thread to widen (4 x 95 = 380 of 1,024 issue slots). Shared memory: 64 bytes a cycle read by
// the tensor cores, 25 written, 10 of blocks read.
#include "gpu/cuda/expert_matmul.h"
#include "gpu/cuda/fragments.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "gpu/cuda/wgmma.cuh"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kGroups = 4;                                 // warpgroups that multiply
constexpr uint32_t kRows = 64 * kGroups;                        // weight rows of a tile
constexpr uint32_t kStages = 4, kStageBytes = kTileRows * 128;  // 64 columns of activations
constexpr uint32_t kRawStages = 2;                              // blocks of 256 columns
constexpr uint32_t kBehind = 2;  // stages whose copies may be under way behind the newest
constexpr uint32_t kCopiers = 128;
constexpr uint32_t kThreads = 128 * kGroups + kCopiers;
constexpr uint32_t kTileSlots = 4;   // tiles that the copiers can be ahead, and more
constexpr uint32_t kOutStride = 80;  // bytes of 32 results and padding
constexpr uint32_t kOutBytes = kTileRows * kOutStride;  // of a warpgroup
static_assert(64 * 144 <= kOutBytes);

struct TileInfo {
    uint32_t first, rows, feature;
};

template <class Format>
struct Shared {
    alignas(1024) std::byte stage[kStages][kStageBytes];
    std::byte raw[kRawStages][kRows * Format::kStride];
    std::byte out[kGroups][kOutBytes];
    uint32_t out_row[kTileSlots][kTileRows];
    uint32_t in_row[kTileRows];
    TileInfo tile[kTileSlots];
    uint64_t full[kStages], empty[kStages], raw_empty[kRawStages];
};

// Position in a ring of kSlots: the slot, and the parity of its phase.
template <uint32_t kSlots>
struct Ring {
    uint32_t slot = 0, parity = 0;
    __device__ void advance() {
        if (++slot == kSlots) slot = 0, parity ^= 1;
    }
};

template <class Format, bool kGateUp>
__device__ void bring(const ExpertMatmul& job, Shared<Format>& shared, uint32_t tiles) {
    const uint32_t thread = threadIdx.x % kCopiers;
    constexpr uint32_t kFeatures = kGateUp ? kRows / 2 : kRows;
    const uint32_t across = (job.features + kFeatures - 1) / kFeatures;
    const uint32_t blocks = job.cols / 256, row_bytes = blocks * Format::kBlockBytes;
    const auto* x = static_cast<const std::byte*>(job.x);
    Ring<kStages> stage, ready;
    Ring<kRawStages> raw;
    uint32_t issued = 0;
    auto stage_ready = [&] {
        fence_for_async();
        barrier_arrive(shared_address(&shared.full[ready.slot]));
        ready.advance();
    };

    uint32_t number = 0;
    for (uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x, ++number) {
        const ExpertTile at = job.tiles[tile / across];
        const uint32_t feature = tile % across * kFeatures;
        const uint32_t rows = at.rows, columns = (rows + 15) / 16 * 16;
        const uint32_t route = job.order[at.first + min(thread, rows - 1)];
        const ExpertEntry entry = job.entries[at.expert];
        named_barrier(1, kCopiers);  // all have read the last tile's in_row
        shared.in_row[thread] = kGateUp ? route / job.used : at.first + min(thread, rows - 1);
        shared.out_row[number % kTileSlots][thread] = route;
        if (thread == 0)
            shared.tile[number % kTileSlots] = {static_cast<uint32_t>(at.first), rows, feature};
        named_barrier(1, kCopiers);

        for (uint32_t block = 0; block < blocks; ++block) {
            barrier_wait(shared_address(&shared.raw_empty[raw.slot]), raw.parity ^ 1);
            const uint32_t to = shared_address(shared.raw[raw.slot]);
            for (uint32_t i = thread; i < kRows * Format::kPieces; i += kCopiers) {
                const uint32_t row = i / Format::kPieces, piece = i % Format::kPieces;
                const std::byte* matrix =
                    kGateUp ? row < kFeatures ? entry.gate : entry.up : entry.down;
                // Gate and up: rows in the order in which the results are to lie.
                const uint32_t down = feature + (kGateUp ? column_at(row % kFeatures) : row);
                size_t from =
                    size_t{min(down, job.features - 1)} * row_bytes + block * Format::kBlockBytes;
                if (!Format::kAligned) from &= ~size_t{15};
                copy_16(to + row * Format::kStride + piece * 16, matrix + from + piece * 16);
            }
            raw.advance();
            for (uint32_t quarter = 0; quarter < 4; ++quarter) {
                barrier_wait(shared_address(&shared.empty[stage.slot]), stage.parity ^ 1);
                const uint32_t into = shared_address(shared.stage[stage.slot]);
                const std::byte* from = x + (block * 256 + quarter * 64) * 2 + thread % 8 * 16;
                for (uint32_t row = thread / 8; row < columns; row += kCopiers / 8)
                    copy_16(into + swizzled(row, thread % 8),
                            from + size_t{shared.in_row[row]} * job.cols * 2);
                copies_commit();
                stage.advance();
                if (++issued > kBehind) {
                    copies_wait<kBehind>();
                    stage_ready();
                }
            }
        }
    }
    copies_wait<0>();
    for (uint32_t i = 0; i < min(issued, kBehind); ++i) stage_ready();
}

template <class Format, bool kGateUp, class Out>
class Multiplier {
  public:
    __device__ Multiplier(const ExpertMatmul& job, Shared<Format>& shared)
        : job_(job), shared_(shared) {}

    __device__ void run(uint32_t tiles) {
        uint32_t number = 0;
        for (uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x, ++number) {
            barrier_wait(shared_address(&shared_.full[stage_.slot]), stage_.parity);
            slot_ = number % kTileSlots;
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
        else if constexpr (sizeof(Out) == 2)
            store_half<kColumns>(sum);
        else
            store_float<kColumns>(sum);
    }

    template <uint32_t kColumns>
    __device__ void multiply(float (&sum)[kColumns / 2]) {
        const uint32_t blocks = job_.cols / 256, row_bytes = blocks * Format::kBlockBytes;
        // This thread's two rows among the raw blocks: gate and up of one feature, or rows g and
        // g + 8 of down.
        const uint32_t low = kGateUp ? group_ * 32 + warp_ * 8 + g_ : group_ * 64 + warp_ * 16 + g_;
        const uint32_t high = low + (kGateUp ? kRows / 2 : 8);
        uint32_t low_at = 0, high_at = 0;
        if constexpr (!Format::kAligned) {
            low_at = weight_row(low) * row_bytes;
            high_at = weight_row(high) * row_bytes;
        }
        for (uint32_t block = 0; block < blocks; ++block) {
            const std::byte* raw = shared_.raw[raw_.slot];
            const uint32_t low_shift = (low_at + block * Format::kBlockBytes) % 16;
            const uint32_t high_shift = (high_at + block * Format::kBlockBytes) % 16;
#pragma unroll
            for (uint32_t quarter = 0; quarter < 4; ++quarter) {
                barrier_wait(shared_address(&shared_.full[stage_.slot]), stage_.parity);
                const RowOperands one =
                    Format::widen(raw + low * Format::kStride, low_shift, quarter, t_);
                const RowOperands two =
                    Format::widen(raw + high * Format::kStride, high_shift, quarter, t_);
                if (quarter == 3) release(&shared_.raw_empty[raw_.slot]);
                const uint64_t b = operand(shared_address(shared_.stage[stage_.slot]));
                hold(sum);
                products_begin();
#pragma unroll
                for (uint32_t step = 0; step < 4; ++step) {
                    const uint32_t a[4] = {one.value[step][0], two.value[step][0],
                                           one.value[step][1], two.value[step][1]};
                    Product<kColumns>::registers(sum, a, b + step * 2);
                }
                products_commit();
                products_wait<0>();
                hold(sum);
                release(&shared_.empty[stage_.slot]);
                stage_.advance();
            }
            raw_.advance();
        }
    }

    // Of down's row `row` of the tile.
    __device__ uint32_t weight_row(uint32_t row) const {
        const uint32_t feature = tile_.feature + (kGateUp ? column_at(row % (kRows / 2)) : row);
        return min(feature, job_.features - 1);
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
        const uint32_t out = shared_address(shared_.out[group_]);
        const uint32_t feature = tile_.feature + group_ * 32;
        group_barrier();
#pragma unroll
        for (uint32_t octet = 0; octet < kColumns / 8; octet += 4) {
            uint32_t value[4];
#pragma unroll
            for (uint32_t j = 0; j < 4; ++j) {
                const uint32_t at = octet + j < kColumns / 8 ? 4 * (octet + j) : 0;
                value[j] = pack_half2(gated(sum[at], sum[at + 2]), gated(sum[at + 1], sum[at + 3]));
            }
            store_matrices_transposed(out + (octet * 8 + lane_) * kOutStride + warp_ * 16, value);
        }
        group_barrier();
        if (feature >= job_.features) return;
        auto* to =
            static_cast<std::byte*>(job_.out) + (size_t{tile_.first} * job_.features + feature) * 2;
        for (uint32_t i = threadIdx.x % 128; i < tile_.rows * 4; i += 128)
            *reinterpret_cast<uint4*>(to + size_t{i / 4} * job_.features * 2 + i % 4 * 16) =
                *reinterpret_cast<const uint4*>(shared_.out[group_] + i / 4 * kOutStride +
                                                i % 4 * 16);
    }
    __device__ static float gated(float gate, float up) {
        return __fdividef(gate, 1 + __expf(-gate)) * up;
    }

    // 32 bytes, a whole sector, of four routes an instruction.
    template <uint32_t kColumns>
    __device__ void store_float(const float (&sum)[kColumns / 2]) {
        const uint32_t feature = tile_.feature + group_ * 64 + warp_ * 16 + g_;
        float* out = static_cast<float*>(job_.out) + feature;
        const bool low = feature < job_.features, high = feature + 8 < job_.features;
#pragma unroll
        for (uint32_t octet = 0; octet < kColumns / 8; ++octet) {
#pragma unroll
            for (uint32_t i = 0; i < 2; ++i) {
                const uint32_t column = octet * 8 + t_ * 2 + i;
                if (column >= tile_.rows) continue;
                float* to = out + size_t{shared_.out_row[slot_][column]} * job_.features;
                if (low) to[0] = sum[octet * 4 + i];
                if (high) to[8] = sum[octet * 4 + 2 + i];
            }
        }
    }

    // Transposed through shared memory, 64 routes at a time: 128 bytes a route and warpgroup.
    template <uint32_t kColumns>
    __device__ void store_half(const float (&sum)[kColumns / 2]) {
        constexpr uint32_t kStride = 144;
        const uint32_t feature = tile_.feature + group_ * 64;
        const uint32_t pieces = feature < job_.features ? min(job_.features - feature, 64u) / 8 : 0;
#pragma unroll
        for (uint32_t start = 0; start < kColumns; start += 64) {
            group_barrier();
#pragma unroll
            for (uint32_t octet = start / 8; octet < min(start + 64, kColumns) / 8; octet += 2) {
                uint32_t value[4];
#pragma unroll
                for (uint32_t j = 0; j < 4; ++j) {
                    const uint32_t at = 4 * (octet + j / 2) + j % 2 * 2;
                    value[j] = pack_half2(sum[at], sum[at + 1]);
                }
                store_matrices_transposed(
                    shared_address(shared_.out[group_]) +
                        (octet * 8 - start + lane_ / 16 * 8 + lane_ % 8) * kStride + warp_ * 32 +
                        lane_ / 8 % 2 * 16,
                    value);
            }
            group_barrier();
            const uint32_t rows = min(tile_.rows - min(tile_.rows, start), 64u);
            for (uint32_t i = threadIdx.x % 128; i < rows * 8; i += 128) {
                if (i % 8 >= pieces) continue;
                const uint32_t row = shared_.out_row[slot_][start + i / 8];
                auto* to = static_cast<std::byte*>(job_.out) +
                           (size_t{row} * job_.features + feature + i % 8 * 8) * 2;
                *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(
                    shared_.out[group_] + i / 8 * kStride + i % 8 * 16);
            }
        }
    }

    const ExpertMatmul& job_;
    Shared<Format>& shared_;
    Ring<kStages> stage_;
    Ring<kRawStages> raw_;
    TileInfo tile_;
    uint32_t slot_ = 0;
    const uint32_t lane_ = threadIdx.x % 32, g_ = lane_ / 4, t_ = lane_ % 4;
    const uint32_t warp_ = threadIdx.x / 32 % 4, group_ = threadIdx.x / 128;
};

template <class Format, bool kGateUp, class Out>
__device__ void expert_matmul(const ExpertMatmul& job) {
    extern __shared__ __align__(1024) std::byte memory[];
    auto& shared = *reinterpret_cast<Shared<Format>*>(memory);
    if (threadIdx.x == 0) {
        for (uint64_t& barrier : shared.full) barrier_init(shared_address(&barrier), kCopiers);
        for (uint64_t& barrier : shared.empty) barrier_init(shared_address(&barrier), 4 * kGroups);
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
        bring<Format, kGateUp>(job, shared, tiles);
    } else {
        more_registers<112>();
        Multiplier<Format, kGateUp, Out>(job, shared).run(tiles);
    }
}

}  // namespace

static_assert(kExpertWgmma.threads == kThreads && kExpertWgmma.shared_q4_k == sizeof(Shared<Q4K>) &&
              kExpertWgmma.shared_q6_k == sizeof(Shared<Q6K>));

extern "C" {
__global__ void __launch_bounds__(kThreads, 1)
    expert_gate_up_wgmma_q4_k(const __grid_constant__ ExpertMatmul job) {
    expert_matmul<Q4K, true, __half>(job);
}
__global__ void __launch_bounds__(kThreads, 1)
    expert_down_wgmma_q4_k(const __grid_constant__ ExpertMatmul job) {
    expert_matmul<Q4K, false, float>(job);
}
__global__ void __launch_bounds__(kThreads, 1)
    expert_down_wgmma_q6_k(const __grid_constant__ ExpertMatmul job) {
    expert_matmul<Q6K, false, float>(job);
}
__global__ void __launch_bounds__(kThreads, 1)
    expert_down_half_wgmma_q4_k(const __grid_constant__ ExpertMatmul job) {
    expert_matmul<Q4K, false, __half>(job);
}
}

}  // namespace granary::gpu::cuda
#endif

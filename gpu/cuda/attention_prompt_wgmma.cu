// SPDX-License-Identifier: GPL-3.0-or-later
// Prompt attention for compute capability 9.0a: online softmax over tiles of cells (Dao et al.
// 2022), the next tile's scores computed while this one's weights meet V (Shah et al. 2024).
//
// A block holds 128 query rows in two warpgroups; one thread of a third brings K and V with the
// tensor copy engine, two tiles ahead. Scores, weights and sums stay in registers.
//
// Head 128, a tile of 128 cells: 8.4 MFLOP = 2,048 cycles of the tensor cores; 64 KB from L2 (32
// bytes a cycle); 16,384 exponentials = 1,024 cycles of the special function units, behind the
// other warpgroup's products. Shared memory read by the tensor cores: 96 bytes a cycle for the
// scores, 64 for the sums. Head 256, tiles of 64 cells: the same figures, but 128 bytes a cycle
// for the scores, which is all there is, and with what is written, 2,000 of 2,048 cycles of it.
// Hence a part of the queries stays in registers: an eighth less for heads of 256, a fifth for
// those of 128.
#include "gpu/cuda/attention_prompt.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "gpu/cuda/softmax.cuh"
#include "gpu/cuda/wgmma.cuh"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kGroups = 2, kThreads = 128 * (kGroups + 1), kQueryRows = 64 * kGroups;
constexpr uint32_t kStages = 2;

template <uint32_t kDim, uint32_t kCells>
struct Shared {
    alignas(1024) std::byte q[kDim / 64][kQueryRows * 128];
    std::byte k[kStages][kDim / 64][kCells * 128];
    std::byte v[kStages][kDim / 64][kCells * 128];
    uint64_t k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
};

struct Ring {
    uint32_t slot = 0, parity = 0;
    __device__ void advance() {
        if (++slot == kStages) slot = 0, parity ^= 1;
    }
};

// One box of 64 dims x the map's cells.
__device__ __forceinline__ void copy_box(uint32_t to, const TensorMap& map, uint32_t dim,
                                         uint32_t head, uint32_t cell, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
        "l"(&map), "r"(dim), "r"(head), "r"(cell % kStepCells), "r"(cell / kStepCells), "r"(barrier)
        : "memory");
}

template <uint32_t kDim, uint32_t kCells>
__device__ void bring(const TensorMap& k_map, const TensorMap& v_map, Shared<kDim, kCells>& shared,
                      uint32_t begin, uint32_t tiles) {
    Ring ring;
    for (uint32_t tile = 0; tile < tiles; ++tile, ring.advance()) {
        const uint32_t cell = begin + tile * kCells;
        auto bring_one = [&](const TensorMap& map, std::byte(&to)[kDim / 64][kCells * 128],
                             uint64_t& full, uint64_t& empty) {
            barrier_wait(shared_address(&empty), ring.parity ^ 1);
            barrier_arrive_expecting(shared_address(&full), kCells * kDim * 2);
            for (uint32_t box = 0; box < kDim / 64; ++box)
                copy_box(shared_address(to[box]), map, box * 64, blockIdx.y, cell,
                         shared_address(&full));
        };
        bring_one(k_map, shared.k[ring.slot], shared.k_full[ring.slot], shared.k_empty[ring.slot]);
        bring_one(v_map, shared.v[ring.slot], shared.v_full[ring.slot], shared.v_empty[ring.slot]);
    }
}

template <uint32_t kDim, uint32_t kCells>
class Attender {
  public:
    __device__ Attender(const QueryTile<kQueryRows>& queries, Shared<kDim, kCells>& shared)
        : queries_(queries), shared_(shared) {
        for (uint32_t half = 0; half < 2; ++half) {
            row_[half] = warpgroup_ * 64 + warp_ * 16 + g_ + 8 * half;
            last_cell_[half] = queries.cell(row_[half]);
        }
#pragma unroll
        for (float& value : out_) value = 0;
    }

    // Rows as f16 times the scale, swizzled; of some dims to registers too.
    __device__ void load_queries() {
        constexpr uint32_t kPieces = kDim / 8;
#pragma unroll 8
        for (uint32_t i = threadIdx.x % 128; i < 64 * kPieces; i += 128) {
            const uint32_t row = i / kPieces, piece = i % kPieces;
            const auto* from = reinterpret_cast<const float4*>(
                queries_.job.q + queries_.place(warpgroup_ * 64 + row) * kDim + piece * 8);
            const float4 a = from[0], b = from[1];
            const float s = queries_.job.scale;
            *reinterpret_cast<uint4*>(shared_.q[piece / 8] +
                                      swizzled(warpgroup_ * 64 + row, piece % 8)) =
                make_uint4(pack_half2(a.x * s, a.y * s), pack_half2(a.z * s, a.w * s),
                           pack_half2(b.x * s, b.y * s), pack_half2(b.z * s, b.w * s));
        }
        fence_for_async();
        named_barrier(1 + warpgroup_, 128);
#pragma unroll
        for (uint32_t step = 0; step < kHeld; ++step)
            load_matrices(held_[step], shared_address(shared_.q[step / 4]) +
                                           swizzled(warpgroup_ * 64 + warp_ * 16 + threadIdx.x % 16,
                                                    step % 4 * 2 + threadIdx.x % 32 / 16));
    }

    __device__ void run(uint32_t tiles) {
        if (tiles) {
            float score[kCells / 2];
            uint32_t weight[kCells / 16][4];
            begin_scores(score);
            products_wait<0>();
            hold(score);
            release(shared_.k_empty);
            k_.advance();
            float factor[2];
            weigh(score, 0, factor);
            scale(out_, factor);
            pack(score, weight);
            for (uint32_t tile = 1; tile < tiles; ++tile) {
                begin_scores(score);
                begin_sums(weight);
                products_wait<1>();
                hold(score);
                release(shared_.k_empty);
                k_.advance();
                weigh(score, tile, factor);
                products_wait<0>();
                hold(out_);
                release(shared_.v_empty);
                v_.advance();
                scale(out_, factor);
                pack(score, weight);
            }
            begin_sums(weight);
            products_wait<0>();
            hold(out_);
        }
        for (uint32_t half = 0; half < 2; ++half)
            queries_.template store<kDim>(row_[half], softmax_.row[half], [&](uint32_t i) {
                return make_float2(out_[4 * i + 2 * half], out_[4 * i + 2 * half + 1]);
            });
    }

  private:
    template <class Barriers>
    __device__ void release(Barriers& empty) {
        const uint32_t slot = &empty == &shared_.k_empty ? k_.slot : v_.slot;
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(&empty[slot]));
    }

    // score = Q K^T; dims 16 kHeld .. first.
    __device__ void begin_scores(float (&score)[kCells / 2]) {
        barrier_wait(shared_address(&shared_.k_full[k_.slot]), k_.parity);
        hold(score);
        products_begin();
#pragma unroll
        for (uint32_t i = 0; i < kDim / 16; ++i) {
            // Those in shared memory first: the others add to what is there.
            const uint32_t step = (kHeld + i) % (kDim / 16);
            const uint64_t q = operand(shared_address(shared_.q[step / 4]) + warpgroup_ * 8192);
            const uint64_t k = operand(shared_address(shared_.k[k_.slot][step / 4]));
            if (i < kDim / 16 - kHeld)
                Product<kCells>::shared(score, q + step % 4 * 2, k + step % 4 * 2, i);
            else
                Product<kCells>::registers(score, held_[step], k + step % 4 * 2);
        }
        products_commit();
    }
    // out += weight V
    __device__ void begin_sums(const uint32_t (&weight)[kCells / 16][4]) {
        barrier_wait(shared_address(&shared_.v_full[v_.slot]), v_.parity);
        hold(out_);
        products_begin();
        const uint64_t v = operand(shared_address(shared_.v[v_.slot]), kCells * 128);
#pragma unroll
        for (uint32_t step = 0; step < kCells / 16; ++step)
            Product<kDim>::registers_transposed(out_, weight[step], v + step * 128);
        products_commit();
    }

    // Scores become weights; `factor` is what older results are to be multiplied by.
    __device__ void weigh(float (&score)[kCells / 2], uint32_t tile, float (&factor)[2]) {
        const uint32_t cell = queries_.begin + tile * kCells;
        if (cell + kCells > queries_.cell(warpgroup_ * 64) + 1) mask(score, cell, last_cell_);
        softmax_.weigh(score, factor);
    }

    // Steps of 16 dims whose queries stay in registers too: as many as there are registers for.
    static constexpr uint32_t kHeld = kDim == 256 ? 8 : 7;

    const QueryTile<kQueryRows>& queries_;
    Shared<kDim, kCells>& shared_;
    const uint32_t t_ = threadIdx.x % 4, g_ = threadIdx.x % 32 / 4;
    const uint32_t warp_ = threadIdx.x / 32 % 4, warpgroup_ = threadIdx.x / 128;
    uint32_t row_[2], last_cell_[2];
    Ring k_, v_;
    SoftmaxRows softmax_;
    float out_[kDim / 2];
    uint32_t held_[kHeld][4];
};

template <uint32_t kDim, uint32_t kCells>
__device__ void attend(const AttentionPrompt& job, const TensorMap& k_map, const TensorMap& v_map) {
    extern __shared__ __align__(1024) std::byte memory[];
    auto& shared = *reinterpret_cast<Shared<kDim, kCells>*>(memory);
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < kStages; ++i) {
            barrier_init(shared_address(&shared.k_full[i]), 1);
            barrier_init(shared_address(&shared.v_full[i]), 1);
            barrier_init(shared_address(&shared.k_empty[i]), 4 * kGroups);
            barrier_init(shared_address(&shared.v_empty[i]), 4 * kGroups);
        }
        barrier_init_done();
    }
    __syncthreads();
    const QueryTile<kQueryRows> queries{job};
    const uint32_t tiles = queries.tiles(kCells);
    if (threadIdx.x >= 128 * kGroups) {
        fewer_registers<24>();
        if (threadIdx.x == 128 * kGroups)
            bring<kDim, kCells>(k_map, v_map, shared, queries.begin, tiles);
    } else {
        more_registers<240>();
        Attender<kDim, kCells> attender(queries, shared);
        attender.load_queries();
        attender.run(tiles);
    }
}

}  // namespace

static_assert(kAttentionWgmma128.shared == sizeof(Shared<128, kAttentionWgmma128.cells>));
static_assert(kAttentionWgmma256.shared == sizeof(Shared<256, kAttentionWgmma256.cells>));

extern "C" {
__global__ void __launch_bounds__(kThreads, 1)
    attention_prompt_wgmma_128(const __grid_constant__ AttentionPrompt job,
                               const __grid_constant__ TensorMap k,
                               const __grid_constant__ TensorMap v) {
    attend<128, 128>(job, k, v);
}
__global__ void __launch_bounds__(kThreads, 1)
    attention_prompt_wgmma_256(const __grid_constant__ AttentionPrompt job,
                               const __grid_constant__ TensorMap k,
                               const __grid_constant__ TensorMap v) {
    attend<256, 64>(job, k, v);
}
}

}  // namespace granary::gpu::cuda
#endif

// SPDX-License-Identifier: GPL-3.0-or-later
// The chunks of a prompt in order (delta_net_mma.cuh): by wgmma on compute capability 9.0a, whose
// accumulators lie as those of mma.sync, which others use.
#include "gpu/cuda/delta_net_mma.cuh"
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "gpu/cuda/wgmma.cuh"
#endif

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kColumns = kDeltaMmaColumns;

// Rows of 64 dims or tokens are 128 bytes, swizzled.
constexpr uint32_t kTile = kCells * 128;

struct ChunkStage {
    alignas(1024) std::byte w[2 * kTile];
    std::byte q[2 * kTile], k[2 * kTile], p[kTile], u[kTile];
    float decayed[kCells], left[kCells];  // exp(G_i); exp(G_last - G_i), 0 of rows beyond
};
static_assert(kDeltaMmaStage == sizeof(ChunkStage) && kColumns == 64 && kDim == 128);

// What a warp that renews 16 columns of the state hands to the one that makes their outputs, as
// operands of products.
struct Handed {
    uint4 state[kDim / 16][32], delta[kCells / 16][32];
};
static_assert(kDeltaMmaHanded == sizeof(Handed) * kColumns / 16);

// The barrier of two warps, by number 1 to 15: one arrives, the other waits.
__device__ __forceinline__ void pair_arrive(uint32_t number) {
    asm volatile("bar.arrive %0, 64;" ::"r"(number) : "memory");
}
__device__ __forceinline__ void pair_wait(uint32_t number) {
    asm volatile("bar.sync %0, 64;" ::"r"(number) : "memory");
}

// Two values as f16, the first in the low half; beyond +-65504 they stay there.
__device__ __forceinline__ uint32_t pack_two(float low, float high) {
#if GRANARY_CUDA_ARCH >= 800
    uint32_t result;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    return result;
#else
    return pack_half2(low, high);
#endif
}

// Columns of the state of a value head, 16 a pair of warps. The first of them holds them as the
// accumulators of their transpose, [v, k], the second makes outputs; four more bring chunks.
class Recur {
  public:
    __device__ Recur(const DeltaNet& job, std::byte* memory)
        : job_(job),
          handed_(reinterpret_cast<Handed*>(memory)[pair_]),
          stages_(reinterpret_cast<ChunkStage*>(memory + kDeltaMmaHanded)),
          head_(blockIdx.y),
          row_bytes_(head_of(job, 0).channels * sizeof(float)) {}

    __device__ void run(uint32_t stages) {
        const uint32_t role = threadIdx.x / (2 * kColumns);
        if (role == 0) {
            load_state();
            for (uint32_t number = 0; number < job_.chunks; ++number) {
                next_chunk(stages);
                renew(number, stages_[number % stages]);
            }
            store_state();
        } else if (role == 1) {
            float out[kCells / 2];
            for (uint32_t number = 0; number < job_.chunks; ++number) {
                next_chunk(stages);
                // While the other warp has nothing to hand over yet.
                if (number > 0) store_out(out, chunk_of(job_, number - 1));
                make_out(out, stages_[number % stages]);
            }
            store_out(out, chunk_of(job_, job_.chunks - 1));
        } else {
            bring_all(stages);
        }
    }

  private:
    // All of the block: a chunk has come, the one before it is no longer used.
    __device__ void next_chunk(uint32_t stages) const {
        if (stages == 1) __syncthreads();
        __syncthreads();
    }
    __device__ void bring_all(uint32_t stages) const {
        const uint32_t ahead = stages - 1;
        for (uint32_t number = 0; number < ahead; ++number) bring(number, stages);
        for (uint32_t number = 0; number < job_.chunks; ++number) {
            if (ahead == 0) {
                __syncthreads();
                bring(number, stages);
            }
            if (ahead == 2)
                copies_wait<1>();
            else
                copies_wait<0>();
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
            fence_for_async();
#endif
            __syncthreads();
            if (ahead > 0) bring(number + ahead, stages);
        }
    }
    // A chunk to its stage, if there is one. Rows beyond it are the last one again: their factors
    // are 0.
    __device__ void bring(uint32_t number, uint32_t stages) const {
        if (number >= job_.chunks) return copies_commit();
        ChunkStage& to = stages_[number % stages];
        const Chunk chunk = chunk_of(job_, number);
        const Head at = head_of(job_, head_);
        const uint32_t number_of_key = head_ / job_.key_heads;
        const uint32_t thread = threadIdx.x % kBringers;
        const std::byte* const rows =
            reinterpret_cast<const std::byte*>(job_.x) + chunk.first * row_bytes_;
        const std::byte* const q = rows + at.q * sizeof(float);
        const std::byte* const k = rows + at.k * sizeof(float);
        const std::byte* const v = rows + at.v * sizeof(float);
        bring_rows<16>(shared_address(to.w), v, chunk.count);
        bring_rows<8>(shared_address(to.u), v + kWide + blockIdx.x * kColumns * 2, chunk.count);
        bring_rows<16>(shared_address(to.q), q, chunk.count);
        bring_rows<8>(shared_address(to.p),
                      (number_of_key < 2 ? q : k) + kWide + number_of_key % 2 * 128, chunk.count);
        bring_rows<16>(shared_address(to.k), k, chunk.count);
        const uint32_t row = thread % kCells;
        const size_t gate = size_t{chunk.first + row} * job_.value_heads + head_;
        const float* const from = (thread < kCells ? job_.alpha : job_.beta) + gate;
        float* const factor = (thread < kCells ? to.decayed : to.left) + row;
        if (row >= chunk.count)
            *factor = 0;
        else
            copy_float(factor, from);
        copies_commit();
    }
    __device__ static void copy_float(float* to, const float* from) {
#if GRANARY_CUDA_ARCH >= 800
        copy_small<4>(shared_address(to), from);
#else
        *to = *from;
#endif
    }
    template <uint32_t kPieces>
    __device__ void bring_rows(uint32_t to, const std::byte* from, uint32_t count) const {
        constexpr uint32_t kAtOnce = kBringers / kPieces;
        const uint32_t thread = threadIdx.x % kBringers;
        const uint32_t first = thread / kPieces, piece = thread % kPieces;
        to += piece / 8 * kTile + swizzled(first, piece % 8);
        from += piece * 16;
#pragma unroll
        for (uint32_t i = 0; i < kCells / kAtOnce; ++i)
            copy_16(to + i * kAtOnce * 128,
                    from + min(first + i * kAtOnce, count - 1) * row_bytes_);
    }

    // delta = U - W state, transposed: [v, tokens]; then the state.
    __device__ void renew(uint32_t number, const ChunkStage& stage) {
        uint32_t state[kDim / 16][4], left[kCells / 16][4];
#pragma unroll
        for (uint32_t at = 0; at < kDim / 16; ++at) {
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i)
                state[at][i] = pack_two(state_[8 * at + 2 * i], state_[8 * at + 2 * i + 1]);
            handed_.state[at][lane_] =
                make_uint4(state[at][0], state[at][1], state[at][2], state[at][3]);
        }
        pair_arrive(kStateHanded + pair_);
        float delta[kCells / 2];
        load_u(delta, shared_address(stage.u));
        add_product<false>(delta, state, shared_address(stage.w));
        const float decay = stage.decayed[chunk_of(job_, number).count - 1];
#pragma unroll
        for (float& value : state_) value *= decay;
        finish(delta);
#pragma unroll
        for (uint32_t at = 0; at < kCells / 16; ++at) {
            uint32_t plain[4];
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) {
                const float low = delta[8 * at + 2 * i], high = delta[8 * at + 2 * i + 1];
                const float2 f = factors_of(stage.left, 2 * at + i / 2);
                plain[i] = pack_two(low, high);
                left[at][i] = pack_two(low * f.x, high * f.y);
            }
            handed_.delta[at][lane_] = make_uint4(plain[0], plain[1], plain[2], plain[3]);
        }
        pair_arrive(kDeltaHanded + pair_);
        add_to_state(left, shared_address(stage.k));
        finish(state_);
    }

    // The outputs, transposed: the state's part times what is left of it, and that of delta, of
    // which tokens see those up to them.
    __device__ void make_out(float (&out)[kCells / 2], const ChunkStage& stage) const {
        uint32_t state[kDim / 16][4], delta[kCells / 16][4];
#pragma unroll
        for (float& value : out) value = 0;
        pair_wait(kStateHanded + pair_);
        take(state, handed_.state);
        add_product<false>(out, state, shared_address(stage.q));
        finish(out);
#pragma unroll
        for (uint32_t tile = 0; tile < kCells / 8; ++tile) {
            const float2 f = factors_of(stage.decayed, tile);
            out[4 * tile] *= f.x, out[4 * tile + 1] *= f.y;
            out[4 * tile + 2] *= f.x, out[4 * tile + 3] *= f.y;
        }
        pair_wait(kDeltaHanded + pair_);
        take(delta, handed_.delta);
        add_product<true>(out, delta, shared_address(stage.p));
        finish(out);
    }
    template <uint32_t kCount>
    __device__ void take(uint32_t (&to)[kCount][4], const uint4 (&from)[kCount][32]) const {
#pragma unroll
        for (uint32_t at = 0; at < kCount; ++at) {
            const uint4 four = from[at][lane_];
            to[at][0] = four.x, to[at][1] = four.y, to[at][2] = four.z, to[at][3] = four.w;
        }
    }
    // Of this lane's two tokens of eight.
    __device__ float2 factors_of(const float (&factors)[kCells], uint32_t tile) const {
        return *reinterpret_cast<const float2*>(&factors[8 * tile + lane_ % 4 * 2]);
    }

    // ---- products: begun here; finish() waits for them

    // sum[v, tokens] += left[v, i] rows[tokens, i], 16 kSteps of i; of a triangle only i up to the
    // token counts.
    template <bool kTriangle, uint32_t kSteps>
    __device__ void add_product(float (&sum)[kCells / 2], const uint32_t (&left)[kSteps][4],
                                uint32_t rows) const {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
        hold(sum);
        products_begin();
#pragma unroll
        for (uint32_t at = 0; at < kSteps; ++at)
            Product<kCells>::registers(sum, left[at], operand(rows + at / 4 * kTile) + at % 4 * 2);
        products_commit();
#else
#pragma unroll
        for (uint32_t at = 0; at < kSteps; ++at)
#pragma unroll
            for (uint32_t tile = kTriangle ? 2 * at : 0; tile < kCells / 8; tile += 2) {
                uint32_t b[4];
                load_matrices(b, rows + at / 4 * kTile +
                                     swizzled(8 * tile + lane_ % 8 + lane_ / 16 * 8,
                                              at % 4 * 2 + lane_ / 8 % 2));
                multiply_two(sum, tile, left[at], b);
            }
#endif
    }
    // state[v, dims] += left[v, tokens] rows[tokens, dims]
    __device__ void add_to_state(const uint32_t (&left)[kCells / 16][4], uint32_t rows) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
        hold(state_);
        products_begin();
#pragma unroll
        for (uint32_t at = 0; at < kCells / 16; ++at)
            Product<kDim>::registers_transposed(state_, left[at], operand(rows, kTile) + at * 128);
        products_commit();
#else
#pragma unroll
        for (uint32_t at = 0; at < kCells / 16; ++at)
#pragma unroll
            for (uint32_t tile = 0; tile < kDim / 8; tile += 2) {
                uint32_t b[4];
                load_matrices_transposed(b,
                                         rows + tile / 8 * kTile +
                                             swizzled(16 * at + lane_ % 16, tile % 8 + lane_ / 16));
                multiply_two(state_, tile, left[at], b);
            }
#endif
    }
    // Tiles `tile` and `tile` + 1 of eight columns.
    template <uint32_t kCount>
    __device__ static void multiply_two(float (&sum)[kCount], uint32_t tile,
                                        const uint32_t (&left)[4], const uint32_t (&b)[4]) {
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i)
            mma_16x8x16(*reinterpret_cast<float(*)[4]>(sum + 4 * (tile + i)), left, b[2 * i],
                        b[2 * i + 1]);
    }
    template <int kCount>
    __device__ static void finish([[maybe_unused]] float (&sum)[kCount]) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
        products_wait<0>();
        hold(sum);
#endif
    }

    __device__ void load_u(float (&delta)[kCells / 2], uint32_t u) const {
#pragma unroll
        for (uint32_t tile = 0; tile < 8; tile += 2) {
            uint32_t part[4];
            load_matrices_transposed(part, u + swizzled(8 * tile + lane_ / 16 * 8 + lane_ % 8,
                                                        2 * pair_ + lane_ / 8 % 2));
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) {
                const float2 two = __half22float2(as_half2(part[i]));
                delta[4 * tile + 2 * i] = two.x;
                delta[4 * tile + 2 * i + 1] = two.y;
            }
        }
    }
    // Eight lanes fill a sector.
    __device__ void store_out(const float (&out)[kCells / 2], const Chunk& chunk) const {
        const float scale = rsqrtf(float(kDim));
        float* const to = job_.out + (size_t{chunk.first} * job_.value_heads + head_) * kDim +
                          first_column() + lane_ / 4;
#pragma unroll
        for (uint32_t tile = 0; tile < 8; ++tile)
#pragma unroll
            for (uint32_t c = 0; c < 2; ++c) {
                const uint32_t row = 8 * tile + lane_ % 4 * 2 + c;
                if (row >= chunk.count) continue;
                float* const at = to + size_t{row} * job_.value_heads * kDim;
                at[0] = out[4 * tile + c] * scale;
                at[8] = out[4 * tile + 2 + c] * scale;
            }
    }

    __device__ uint32_t first_column() const {
        return blockIdx.x * kColumns + pair_ * 16;
    }
    // Of the state's row `8 tile + 2 t`, this lane's column.
    __device__ float* kept(uint32_t tile) const {
        return job_.state + (size_t{head_} * kDim + 8 * tile + lane_ % 4 * 2) * kDim +
               first_column() + lane_ / 4;
    }
    __device__ void load_state() {
#pragma unroll
        for (uint32_t tile = 0; tile < kDim / 8; ++tile) {
            const float* const from = kept(tile);
            state_[4 * tile] = from[0], state_[4 * tile + 1] = from[kDim];
            state_[4 * tile + 2] = from[8], state_[4 * tile + 3] = from[kDim + 8];
        }
    }
    __device__ void store_state() const {
#pragma unroll
        for (uint32_t tile = 0; tile < kDim / 8; ++tile) {
            float* const to = kept(tile);
            to[0] = state_[4 * tile], to[kDim] = state_[4 * tile + 1];
            to[8] = state_[4 * tile + 2], to[kDim + 8] = state_[4 * tile + 3];
        }
    }

    static constexpr uint32_t kBringers = 128;
    static_assert(kBringers == 2 * kCells && kDeltaMmaThreads == 4 * kColumns + kBringers);
    static constexpr uint32_t kStateHanded = 1, kDeltaHanded = 1 + kColumns / 16;

    const DeltaNet& job_;
    const uint32_t lane_ = threadIdx.x % 32, pair_ = threadIdx.x / 32 % (kColumns / 16);
    Handed& handed_;
    ChunkStage* const stages_;
    const uint32_t head_;
    const size_t row_bytes_;
    float state_[kDim / 2];  // accumulators: tiles of 8 of the keys' dims, four values each
};

}  // namespace

// Work: 6 dim^2 + 64 dim operations a token and value head. Bytes, from the L2 cache mostly: 1,024
// a token for each 64 columns. A block takes the chunks in order and keeps its columns of the state
// in registers. Grid: (2, value_heads). With `stages` of shared memory, 1 to 3, so many chunks less
// one come while the one before them is used.
extern "C" __global__ void __launch_bounds__(kDeltaMmaThreads)
    delta_net_chunk_mma(const __grid_constant__ DeltaNet job, uint32_t stages) {
    extern __shared__ __align__(1024) std::byte memory[];
    Recur(job, memory).run(stages);
}

}  // namespace granary::gpu::cuda

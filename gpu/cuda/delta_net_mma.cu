// SPDX-License-Identifier: GPL-3.0-or-later
// Prompts of the gated delta net by tensor cores, for heads of 128: f16 factors, f32 sums, the
// state in f32 from the first chunk to the last. What is done is told in delta_net.h; here all
// products of 64 x 64 x 128 are mma.sync and the triangular system is inverted.
//
// Between the two kernels a chunk's rows hold f16 where q, k and v were, so that nothing else is
// needed and all chunks are one launch of each (bytes of a row):
//   q of a key head   unit q 256, then P's row of its first two value heads, 128 each
//   k of a key head   unit k 256, then P's row of its third and fourth value head
//   v of a value head -W 256, U 256
//   alpha, beta       exp(G_i), exp(G_last - G_i)
// P and q lack 1 / sqrt(dim), which the outputs are multiplied by.
#include "gpu/cuda/delta_net.cuh"
#include "gpu/cuda/mma.cuh"
#include "gpu/cuda/portable.h"
#include "gpu/cuda/rows.cuh"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kDim = 128;
constexpr uint32_t kWide = kDim * 2;      // bytes of a row of a head in f16
constexpr uint32_t kSystem = kCells + 4;  // floats of a row of the triangular system

// Where a 16-byte piece of a row of 256 bytes lies: as swizzled() does for rows of 128.
__device__ __forceinline__ uint32_t swizzled_wide(uint32_t row, uint32_t piece) {
    return row * kWide + (piece ^ row % 8) * 16;
}

struct PrepareShared {
    alignas(16) std::byte q[kCells * kWide];  // then v of a value head
    std::byte k[kCells * kWide];
    float system[kCells][kSystem];  // I + A less I, then its inverse
    std::byte of_v[kCells * 128], of_k[kCells * 128];
    float sums[kCells], rate[kCells], decayed[kCells];
};
static_assert(kDeltaMmaPrepareShared == sizeof(PrepareShared));

// Eight bytes of f16 from four values.
__device__ __forceinline__ uint2 four_halves(const float4& v, float f) {
    return {pack_half2(v.x * f, v.y * f), pack_half2(v.z * f, v.w * f)};
}

// What neighbours hold of two tiles of eight columns, 4 bytes each of both, so that each has 8 of
// one: even lanes of the first, odd ones of the second. A warp's store then fills whole sectors.
__device__ __forceinline__ uint2 paired(uint32_t first, uint32_t second, uint32_t lane) {
    const bool odd = lane % 2;
    const uint32_t got = __shfl_xor_sync(~0u, odd ? first : second, 1);
    return odd ? make_uint2(got, second) : make_uint2(first, got);
}
// Where they go in a row, in bytes from the first tile's.
__device__ __forceinline__ uint32_t paired_at(uint32_t lane) {
    return lane % 2 * 16 + lane % 4 / 2 * 8;
}

// x / (1 + exp(-x)).
__device__ __forceinline__ float silu(float x) {
    return __fdividef(x, 1 + __expf(fminf(-x, 87)));
}

template <bool kConvolves>
class Prepare {
  public:
    __device__ Prepare(const DeltaNet& job, PrepareShared& shared)
        : job_(job),
          shared_(shared),
          chunk_(chunk_of(job, blockIdx.x)),
          row_bytes_(head_of(job, 0).channels * sizeof(float)),
          rows_(reinterpret_cast<std::byte*>(job.x) + chunk_.first * row_bytes_) {}

    __device__ void run() {
        const Head at = head_of(job_, blockIdx.y);
        std::byte* const q = rows_ + at.q * sizeof(float);
        std::byte* const k = rows_ + at.k * sizeof(float);
        bring_unit(at.q, shared_.q);
        bring_unit(at.k, shared_.k);
        __syncthreads();
        float qk[4][4] = {}, kk[4][4] = {};
        if (below()) multiply_rows(qk, kk);
        for (uint32_t number = 0; number * job_.key_heads < job_.value_heads; ++number) {
            const uint32_t head = number * job_.key_heads + blockIdx.y;
            const size_t channel = head_of(job_, head).v;
            std::byte* const v = rows_ + channel * sizeof(float);
            uint2 values[kRows];
            for_rows(channel,
                     [&](uint32_t i, const float4& value) { values[i] = four_halves(value, 1); });
            if (warp_ == 0) make_gates(head);
            __syncthreads();
#pragma unroll
            for (uint32_t i = 0; i < kRows; ++i) put(shared_.q, row_of(i), values[i]);
            make_system(qk, kk, (number < 2 ? q : k) + kWide + number % 2 * 128);
            __syncthreads();
            invert();
            widen_inverse();
            __syncthreads();
            solve(v);
        }
    }

  private:
    static constexpr uint32_t kRows = kCells / 8;  // of a warp
    // Neighbours where each needs those before it.
    __device__ uint32_t row_of(uint32_t i) const {
        return kConvolves ? warp_ * kRows + i : warp_ + 8 * i;
    }
    // Calls use(i, four values of this lane) for this warp's rows of a head that begins at
    // `channel`; rows that do not exist are zero.
    template <class Use>
    __device__ __forceinline__ void for_rows(size_t channel, const Use& use) const {
        const size_t row_floats = row_bytes_ / sizeof(float);
        channel += lane_ * 4;
        if constexpr (!kConvolves) {
            const float* const from = job_.x + chunk_.first * row_floats + channel;
            float4 value[kRows];
#pragma unroll
            for (uint32_t i = 0; i < kRows; ++i)
                value[i] = row_of(i) < chunk_.count
                               ? *reinterpret_cast<const float4*>(from + row_of(i) * row_floats)
                               : make_float4(0, 0, 0, 0);
#pragma unroll
            for (uint32_t i = 0; i < kRows; ++i) use(i, value[i]);
        } else {
            constexpr int kBefore = kDeltaTaps - 1;
            float4 in[kRows + kBefore], taps[4];
#pragma unroll
            for (uint32_t c = 0; c < 4; ++c)
                taps[c] = reinterpret_cast<const float4*>(job_.kernel)[channel + c];
#pragma unroll
            for (int i = 0; i < int(kRows) + kBefore; ++i) {
                const int local = int(row_of(0)) + i - kBefore, row = int(chunk_.first) + local;
                const float* const from = row < 0 ? job_.tail + (row + kBefore) * row_floats
                                                  : job_.channels + row * row_floats;
                in[i] = local < int(chunk_.count) ? *reinterpret_cast<const float4*>(from + channel)
                                                  : make_float4(0, 0, 0, 0);
            }
#pragma unroll
            for (uint32_t i = 0; i < kRows; ++i) {
                float4 value = make_float4(0, 0, 0, 0);
                if (row_of(i) < chunk_.count) {
                    const auto sum = [&](const float4& w, float a, float b, float c, float d) {
                        return silu(fmaf(w.w, d, fmaf(w.z, c, fmaf(w.y, b, w.x * a))));
                    };
                    const float4 &a = in[i], &b = in[i + 1], &c = in[i + 2], &d = in[i + 3];
                    value = make_float4(
                        sum(taps[0], a.x, b.x, c.x, d.x), sum(taps[1], a.y, b.y, c.y, d.y),
                        sum(taps[2], a.z, b.z, c.z, d.z), sum(taps[3], a.w, b.w, c.w, d.w));
                }
                use(i, value);
            }
        }
    }
    __device__ void put(std::byte* tile, uint32_t row, uint2 halves) const {
        *reinterpret_cast<uint2*>(tile + swizzled_wide(row, lane_ / 2) + lane_ % 2 * 8) = halves;
    }
    // Rows of length 1 to shared memory, and to their place. A warp has a row.
    __device__ void bring_unit(size_t channel, std::byte* tile) const {
        std::byte* const to = rows_ + channel * sizeof(float) + lane_ * 8;
        for_rows(channel, [&](uint32_t i, const float4& v) {
            const float sum = warp_sum(v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w);
            const uint2 halves = four_halves(v, 1 / sqrtf(sum + job_.norm_eps));
            put(tile, row_of(i), halves);
            if (row_of(i) < chunk_.count)
                *reinterpret_cast<uint2*>(to + row_of(i) * row_bytes_) = halves;
        });
    }

    // This warp's tiles of what is 64 x 64: 16 rows, 32 columns; those above the diagonal are idle.
    __device__ uint32_t tile_row() const {
        return warp_ % 4 * 16;
    }
    __device__ uint32_t tile_column() const {
        return warp_ / 4 * 32;
    }
    __device__ bool below() const {
        return tile_column() < tile_row() + 16;
    }

    __device__ void multiply_rows(float (&qk)[4][4], float (&kk)[4][4]) const {
        const uint32_t q = shared_address(shared_.q), k = shared_address(shared_.k);
        const uint32_t row = tile_row() + lane_ % 16;
        const uint32_t column = tile_column() + lane_ % 8 + lane_ / 16 * 8;
#pragma unroll
        for (uint32_t step = 0; step < kDim / 16; ++step) {
            uint32_t of_q[4], of_k[4];
            load_matrices(of_q, q + swizzled_wide(row, 2 * step + lane_ / 16));
            load_matrices(of_k, k + swizzled_wide(row, 2 * step + lane_ / 16));
#pragma unroll
            for (uint32_t pair = 0; pair < 2; ++pair) {
                uint32_t b[4];
                load_matrices(b, k + swizzled_wide(column + 16 * pair, 2 * step + lane_ / 8 % 2));
#pragma unroll
                for (uint32_t i = 0; i < 2; ++i) {
                    mma_16x8x16(qk[2 * pair + i], of_q, b[2 * i], b[2 * i + 1]);
                    mma_16x8x16(kk[2 * pair + i], of_k, b[2 * i], b[2 * i + 1]);
                }
            }
        }
    }

    // By one warp: sums of the logarithms of decay, and what of them the chunks need. Of rows that
    // do not exist the rate is 0, and the decay stays what it was.
    __device__ void make_gates(uint32_t head) const {
        float decay[2], rate[2];
        size_t at[2];
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i) {
            const uint32_t row = 2 * lane_ + i;
            at[i] = size_t{chunk_.first + row} * job_.value_heads + head;
            decay[i] = row < chunk_.count ? job_.alpha[at[i]] : 0;
            rate[i] = row < chunk_.count ? job_.beta[at[i]] : 0;
        }
        float sum = decay[0] + decay[1];
#pragma unroll
        for (uint32_t distance = 1; distance < 32; distance *= 2) {
            const float other = __shfl_up_sync(~0u, sum, distance);
            if (lane_ >= distance) sum += other;
        }
        const float last = __shfl_sync(~0u, sum, 31);
        const float until[2] = {sum - decay[1], sum};
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i) {
            const uint32_t row = 2 * lane_ + i;
            const float decayed = expf(until[i]);
            shared_.sums[row] = until[i];
            shared_.rate[row] = rate[i];
            shared_.decayed[row] = decayed;
            if (row >= chunk_.count) continue;
            job_.alpha[at[i]] = decayed;
            job_.beta[at[i]] = expf(last - until[i]);
        }
    }

    __device__ void make_system(const float (&qk)[4][4], const float (&kk)[4][4],
                                std::byte* p) const {
        if (!below()) return;
#pragma unroll
        for (uint32_t half = 0; half < 2; ++half) {
            const uint32_t i = tile_row() + lane_ / 4 + 8 * half;
            const float sum = shared_.sums[i], rate = shared_.rate[i];
            uint32_t decayed[4];
#pragma unroll
            for (uint32_t tile = 0; tile < 4; ++tile) {
                float of_p[2], of_a[2];
                const uint32_t column = tile_column() + 8 * tile + lane_ % 4 * 2;
#pragma unroll
                for (uint32_t c = 0; c < 2; ++c) {
                    const uint32_t j = column + c;
                    const float between = j <= i ? expf(sum - shared_.sums[j]) : 0;
                    of_p[c] = qk[tile][2 * half + c] * between;
                    of_a[c] = j < i ? rate * between * kk[tile][2 * half + c] : 0;
                }
                decayed[tile] = pack_half2(of_p[0], of_p[1]);
                *reinterpret_cast<float2*>(&shared_.system[i][column]) =
                    make_float2(of_a[0], of_a[1]);
            }
#pragma unroll
            for (uint32_t pair = 0; pair < 2; ++pair) {
                const uint2 four = paired(decayed[2 * pair], decayed[2 * pair + 1], lane_);
                if (i < chunk_.count)
                    *reinterpret_cast<uint2*>(p + i * row_bytes_ + (tile_column() + 16 * pair) * 2 +
                                              paired_at(lane_)) = four;
            }
        }
    }

    // I + A, of which A is in shared memory, gives way to its inverse: blocks of 16 of the diagonal
    // by substitution, a column a thread, then [[B, 0], [C, D]] -> [[b, 0], [-d C b, d]] twice.
    // What lies above the diagonal outside of those blocks is not touched.
    __device__ void invert() const {
        auto& system = shared_.system;
        if (threadIdx.x < kCells) {
            const uint32_t first = threadIdx.x / 16 * 16, column = threadIdx.x % 16;
            float y[16] = {};
#pragma unroll
            for (uint32_t i = 0; i < 16; ++i) {
                float sum = i == column ? 1.0f : 0.0f;
#pragma unroll
                for (uint32_t j = 0; j < i; j += 4) {
                    const float4 a = four_at(first + i, first + j);
                    sum -= a.x * y[j] + a.y * y[j + 1] + a.z * y[j + 2] + a.w * y[j + 3];
                }
                y[i] = sum;
            }
            __syncwarp();
#pragma unroll
            for (uint32_t i = 0; i < 16; ++i) system[first + i][first + column] = y[i];
        }
        __syncthreads();
        {
            const uint32_t first = threadIdx.x / 128 * 32, i = threadIdx.x % 128 / 8;
            join<16, 2>(first, i, threadIdx.x % 8 * 2);
        }
        join<32, 4>(0, threadIdx.x / 8, threadIdx.x % 8 * 4);
    }
    __device__ float4 four_at(uint32_t row, uint32_t column) const {
        return *reinterpret_cast<const float4*>(&shared_.system[row][column]);
    }
    // The block of kSize below the diagonal at `first`; this thread's row of it and kEach columns.
    template <uint32_t kSize, uint32_t kEach>
    __device__ void join(uint32_t first, uint32_t row, uint32_t column) const {
        struct alignas(4 * kEach) Some {
            float value[kEach];
        };
        row += first + kSize;
        column += first;
        const auto product = [&](uint32_t left, uint32_t right, float sign) {
            Some sum = {};
#pragma unroll 4
            for (uint32_t j = 0; j < kSize; j += 4) {
                const float4 four = four_at(row, left + j);
                const float factor[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                for (uint32_t i = 0; i < 4; ++i) {
                    const Some some =
                        *reinterpret_cast<const Some*>(&shared_.system[right + j + i][column]);
#pragma unroll
                    for (uint32_t c = 0; c < kEach; ++c) sum.value[c] += factor[i] * some.value[c];
                }
            }
#pragma unroll
            for (float& value : sum.value) value *= sign;
            __syncthreads();
            *reinterpret_cast<Some*>(&shared_.system[row][column]) = sum;
            __syncthreads();
        };
        product(first, first, 1);                   // C b
        product(first + kSize, first + kSize, -1);  // -d of that
    }

    // The inverse times the rates of its columns, and times those decayed, to f16; the second
    // negated.
    __device__ void widen_inverse() const {
        const uint32_t row = threadIdx.x / 4, tile = threadIdx.x % 4;
        if (tile > row / 16) return;
#pragma unroll
        for (uint32_t piece = 0; piece < 2; ++piece) {
            uint32_t v[4], k[4];
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) {
                const uint32_t j = tile * 16 + piece * 8 + 2 * i;
                const float a = shared_.system[row][j] * shared_.rate[j];
                const float b = shared_.system[row][j + 1] * shared_.rate[j + 1];
                v[i] = pack_half2(a, b);
                k[i] = pack_half2(-a * shared_.decayed[j], -b * shared_.decayed[j + 1]);
            }
            const uint32_t at = swizzled(row, 2 * tile + piece);
            *reinterpret_cast<uint4*>(shared_.of_v + at) = make_uint4(v[0], v[1], v[2], v[3]);
            *reinterpret_cast<uint4*>(shared_.of_k + at) = make_uint4(k[0], k[1], k[2], k[3]);
        }
    }

    // U and -W: a warp has 16 columns of both.
    __device__ void solve(std::byte* to) const {
        multiply_columns(shared_.of_k, shared_.k, to);
        multiply_columns(shared_.of_v, shared_.q, to + kWide);
    }
    __device__ void multiply_columns(const std::byte* left, const std::byte* right,
                                     std::byte* to) const {
        float sum[4][2][4] = {};
#pragma unroll
        for (uint32_t step = 0; step < 4; ++step) {
            uint32_t b[4];
            load_matrices_transposed(
                b, shared_address(right) +
                       swizzled_wide(16 * step + lane_ % 16, 2 * warp_ + lane_ / 16));
#pragma unroll
            for (uint32_t tile = step; tile < 4; ++tile) {
                uint32_t a[4];
                load_matrices(a, shared_address(left) +
                                     swizzled(16 * tile + lane_ % 16, 2 * step + lane_ / 16));
                mma_16x8x16(sum[tile][0], a, b[0], b[1]);
                mma_16x8x16(sum[tile][1], a, b[2], b[3]);
            }
        }
#pragma unroll
        for (uint32_t tile = 0; tile < 4; ++tile)
#pragma unroll
            for (uint32_t half = 0; half < 2; ++half) {
                const float(&of)[2][4] = sum[tile];
                const uint2 four = paired(pack_half2(of[0][2 * half], of[0][2 * half + 1]),
                                          pack_half2(of[1][2 * half], of[1][2 * half + 1]), lane_);
                const uint32_t row = 16 * tile + lane_ / 4 + 8 * half;
                if (row < chunk_.count)
                    *reinterpret_cast<uint2*>(to + row * row_bytes_ + warp_ * 32 +
                                              paired_at(lane_)) = four;
            }
    }

    const DeltaNet& job_;
    PrepareShared& shared_;
    const Chunk chunk_;
    const size_t row_bytes_;
    std::byte* const rows_;
    const uint32_t warp_ = threadIdx.x / 32, lane_ = threadIdx.x % 32;
};

constexpr uint32_t kColumns = kDeltaMmaColumns;

struct ChunkStage {
    std::byte w[kCells * kWide], q[kCells * kWide], k[kCells * kWide];
    std::byte p[kCells * 128], u[kCells * 128];
    float decayed[kCells], left[kCells];  // exp(G_i); exp(G_last - G_i), 0 of rows beyond
};
static_assert(kDeltaMmaStage == sizeof(ChunkStage) && kColumns == 64);

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

// Columns of the state of a value head, 16 a pair of warps. The first of them holds them as the
// accumulators of their transpose, [v, k], the second makes outputs.
class Recur {
  public:
    __device__ Recur(const DeltaNet& job, std::byte* memory)
        : job_(job),
          handed_(reinterpret_cast<Handed*>(memory)[pair_]),
          stages_(reinterpret_cast<ChunkStage*>(memory + kDeltaMmaHanded)),
          head_(blockIdx.y),
          row_bytes_(head_of(job, 0).channels * sizeof(float)) {}

    __device__ void run(uint32_t stages) {
        if (renews_) load_state();
        bring(0, stages_[0]);
        for (uint32_t number = 0; number < job_.chunks; ++number) {
            copies_wait<0>();
            __syncthreads();
            if (stages == 2 && number + 1 < job_.chunks)
                bring(number + 1, stages_[(number + 1) % 2]);
            if (renews_)
                renew(number, stages_[number % stages]);
            else
                put_out(number, stages_[number % stages]);
            if (stages == 1 && number + 1 < job_.chunks) {
                __syncthreads();
                bring(number + 1, stages_[0]);
            }
        }
        if (renews_) store_state();
    }

  private:
    // Rows beyond the chunk are the last one again: their factors are 0.
    __device__ void bring(uint32_t number, ChunkStage& to) const {
        const Chunk chunk = chunk_of(job_, number);
        const Head at = head_of(job_, head_);
        const uint32_t number_of_key = head_ / job_.key_heads, thread = threadIdx.x;
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
        if (thread >= 2 * kCells) return copies_commit();
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
#if __CUDA_ARCH__ >= 800
        copy_small<4>(shared_address(to), from);
#else
        *to = *from;
#endif
    }
    template <uint32_t kPieces>
    __device__ void bring_rows(uint32_t to, const std::byte* from, uint32_t count) const {
        constexpr uint32_t kAtOnce = kDeltaMmaThreads / kPieces;
        const uint32_t first = threadIdx.x / kPieces, piece = threadIdx.x % kPieces;
        to += kPieces == 16 ? swizzled_wide(first, piece) : swizzled(first, piece);
        from += piece * 16;
#pragma unroll
        for (uint32_t i = 0; i < kCells / kAtOnce; ++i)
            copy_16(to + i * kAtOnce * kPieces * 16,
                    from + min(first + i * kAtOnce, count - 1) * row_bytes_);
    }

    // delta = U - W state, transposed: [v, tokens]; then the state.
    __device__ void renew(uint32_t number, const ChunkStage& stage) {
        const uint32_t w = shared_address(stage.w), k = shared_address(stage.k);
        uint32_t state[kDim / 16][4];
#pragma unroll
        for (uint32_t at = 0; at < kDim / 16; ++at) {
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) {
                const float* const two = state_[2 * at + i / 2] + i % 2 * 2;
                state[at][i] = pack_half2(two[0], two[1]);
            }
            handed_.state[at][lane_] =
                make_uint4(state[at][0], state[at][1], state[at][2], state[at][3]);
        }
        pair_arrive(kStateHanded + pair_);
        float delta[8][4];
        load_u(delta, shared_address(stage.u));
#pragma unroll
        for (uint32_t at = 0; at < kDim / 16; ++at) multiply_tokens(delta, state[at], w, at);
        const float decay = stage.decayed[chunk_of(job_, number).count - 1];
#pragma unroll
        for (uint32_t tile = 0; tile < kDim / 8; ++tile)
#pragma unroll
            for (float& value : state_[tile]) value *= decay;
#pragma unroll
        for (uint32_t at = 0; at < kCells / 16; ++at)
            handed_.delta[at][lane_] =
                make_uint4(pack_half2(delta[2 * at][0], delta[2 * at][1]),
                           pack_half2(delta[2 * at][2], delta[2 * at][3]),
                           pack_half2(delta[2 * at + 1][0], delta[2 * at + 1][1]),
                           pack_half2(delta[2 * at + 1][2], delta[2 * at + 1][3]));
        pair_arrive(kDeltaHanded + pair_);
#pragma unroll
        for (uint32_t at = 0; at < kCells / 16; ++at) {
            uint32_t left[4];
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) {
                const uint32_t tile = 2 * at + i / 2;
                const float2 f =
                    *reinterpret_cast<const float2*>(&stage.left[8 * tile + lane_ % 4 * 2]);
                left[i] =
                    pack_half2(delta[tile][i % 2 * 2] * f.x, delta[tile][i % 2 * 2 + 1] * f.y);
            }
#pragma unroll
            for (uint32_t tile = 0; tile < kDim / 8; tile += 2) {
                uint32_t b[4];
                load_matrices_transposed(
                    b, k + swizzled_wide(16 * at + lane_ % 16, tile + lane_ / 16));
                mma_16x8x16(state_[tile], left, b[0], b[1]);
                mma_16x8x16(state_[tile + 1], left, b[2], b[3]);
            }
        }
    }

    // The outputs, transposed: the state's part times what is left of it, and that of delta, of
    // which tokens see those up to them.
    __device__ void put_out(uint32_t number, const ChunkStage& stage) const {
        const uint32_t q = shared_address(stage.q), p = shared_address(stage.p);
        float out[8][4] = {};
        pair_wait(kStateHanded + pair_);
#pragma unroll
        for (uint32_t at = 0; at < kDim / 16; ++at) {
            const uint4 four = handed_.state[at][lane_];
            const uint32_t state[4] = {four.x, four.y, four.z, four.w};
            multiply_tokens(out, state, q, at);
        }
#pragma unroll
        for (uint32_t tile = 0; tile < 8; ++tile) {
            const float2 f =
                *reinterpret_cast<const float2*>(&stage.decayed[8 * tile + lane_ % 4 * 2]);
            out[tile][0] *= f.x, out[tile][1] *= f.y;
            out[tile][2] *= f.x, out[tile][3] *= f.y;
        }
        pair_wait(kDeltaHanded + pair_);
#pragma unroll
        for (uint32_t at = 0; at < kCells / 16; ++at) {
            const uint4 four = handed_.delta[at][lane_];
            const uint32_t delta[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (uint32_t tile = 2 * at; tile < 8; tile += 2) {
                uint32_t b[4];
                load_matrices(
                    b, p + swizzled(8 * tile + lane_ % 8 + lane_ / 16 * 8, 2 * at + lane_ / 8 % 2));
                mma_16x8x16(out[tile], delta, b[0], b[1]);
                mma_16x8x16(out[tile + 1], delta, b[2], b[3]);
            }
        }
        store_out(out, chunk_of(job_, number));
    }

    // sum[v, tokens] += state[v, 16 at ..] rows[tokens, 16 at ..]
    __device__ void multiply_tokens(float (&sum)[8][4], const uint32_t (&state)[4], uint32_t rows,
                                    uint32_t at) const {
#pragma unroll
        for (uint32_t tile = 0; tile < 8; tile += 2) {
            uint32_t b[4];
            load_matrices(b, rows + swizzled_wide(8 * tile + lane_ % 8 + lane_ / 16 * 8,
                                                  2 * at + lane_ / 8 % 2));
            mma_16x8x16(sum[tile], state, b[0], b[1]);
            mma_16x8x16(sum[tile + 1], state, b[2], b[3]);
        }
    }

    __device__ void load_u(float (&delta)[8][4], uint32_t u) const {
#pragma unroll
        for (uint32_t tile = 0; tile < 8; tile += 2) {
            uint32_t part[4];
            load_matrices_transposed(part, u + swizzled(8 * tile + lane_ / 16 * 8 + lane_ % 8,
                                                        2 * pair_ + lane_ / 8 % 2));
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) {
                const float2 two = __half22float2(as_half2(part[i]));
                delta[tile + i / 2][i % 2 * 2] = two.x;
                delta[tile + i / 2][i % 2 * 2 + 1] = two.y;
            }
        }
    }
    // Eight lanes fill a sector.
    __device__ void store_out(const float (&out)[8][4], const Chunk& chunk) const {
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
                at[0] = out[tile][c] * scale;
                at[8] = out[tile][2 + c] * scale;
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
            state_[tile][0] = from[0], state_[tile][1] = from[kDim];
            state_[tile][2] = from[8], state_[tile][3] = from[kDim + 8];
        }
    }
    __device__ void store_state() const {
#pragma unroll
        for (uint32_t tile = 0; tile < kDim / 8; ++tile) {
            float* const to = kept(tile);
            to[0] = state_[tile][0], to[kDim] = state_[tile][1];
            to[8] = state_[tile][2], to[kDim + 8] = state_[tile][3];
        }
    }

    static constexpr uint32_t kStateHanded = 1, kDeltaHanded = 1 + kColumns / 16;

    const DeltaNet& job_;
    const uint32_t lane_ = threadIdx.x % 32, pair_ = threadIdx.x / 32 % (kColumns / 16);
    const bool renews_ = threadIdx.x < 2 * kColumns;
    Handed& handed_;
    ChunkStage* const stages_;
    const uint32_t head_;
    const size_t row_bytes_;
    float state_[kDim / 8][4];
};

}  // namespace

// Work: 8 * 64 dim operations a token and value head and half of that a key head. Bytes: 4 a
// channel read, 3.5 written. A block is one chunk of one key head. Grid: (chunks, key_heads).
extern "C" __global__ void __launch_bounds__(kDeltaThreads, 2)
    delta_net_prepare_mma(const __grid_constant__ DeltaNet job) {
    extern __shared__ __align__(16) std::byte memory[];
    Prepare<false>(job, *reinterpret_cast<PrepareShared*>(memory)).run();
}
// The same behind the convolution: 20 operations a value more.
extern "C" __global__ void __launch_bounds__(kDeltaThreads, 2)
    delta_net_convolve_mma(const __grid_constant__ DeltaNet job) {
    extern __shared__ __align__(16) std::byte memory[];
    Prepare<true>(job, *reinterpret_cast<PrepareShared*>(memory)).run();
}

// What the convolution of later rows takes: the last rows of the channels, a thread one channel.
extern "C" __global__ void __launch_bounds__(kDeltaThreads)
    delta_net_tail(const __grid_constant__ DeltaNet job) {
    constexpr uint32_t kRows = kDeltaTaps - 1;
    const size_t channels = head_of(job, 0).channels;
    const size_t c = blockIdx.x * kDeltaThreads + threadIdx.x;
    if (c >= channels) return;
    // Oldest first: a row that comes from the tail itself comes from a later place.
    for (uint32_t t = 0; t < kRows; ++t) {
        const float* const from = job.n + t >= kRows ? job.channels + (job.n + t - kRows) * channels
                                                     : job.tail + (job.n + t) * channels;
        job.tail[t * channels + c] = from[c];
    }
}

// Work: 6 dim^2 + 64 dim operations a token and value head. Bytes, from the L2 cache mostly: 1,024
// a token for each 64 columns. A block takes the chunks in order and keeps its columns of the
// state in registers. Grid: (2, value_heads). `stages` of shared memory, 1 or 2: with two a chunk
// comes while the one before it is used.
extern "C" __global__ void __launch_bounds__(kDeltaMmaThreads)
    delta_net_chunk_mma(const __grid_constant__ DeltaNet job, uint32_t stages) {
    extern __shared__ __align__(16) std::byte memory[];
    Recur(job, memory).run(stages);
}

}  // namespace granary::gpu::cuda

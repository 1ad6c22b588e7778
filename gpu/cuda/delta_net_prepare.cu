// SPDX-License-Identifier: GPL-3.0-or-later
// What is done to all chunks of a prompt side by side (delta_net_mma.cuh).
#include "gpu/cuda/delta_net_mma.cuh"
#include "gpu/cuda/rows.cuh"

namespace granary::gpu::cuda {
namespace {

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
        if (!below()) return clear(p);
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

    // This warp's tiles of P.
    __device__ void clear(std::byte* p) const {
#pragma unroll
        for (uint32_t i = 0; i < 16; i += 8) {
            const uint32_t row = tile_row() + i + lane_ / 4;
            if (row < chunk_.count)
                *reinterpret_cast<uint4*>(p + row * row_bytes_ + tile_column() * 2 +
                                          lane_ % 4 * 16) = make_uint4(0, 0, 0, 0);
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

}  // namespace granary::gpu::cuda

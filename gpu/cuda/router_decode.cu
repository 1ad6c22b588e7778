// SPDX-License-Identifier: GPL-3.0-or-later
// The norm of a decode step's rows, their routes and the experts that they need, in one launch.
//
// A block has four experts, and a warp of it a quarter of 2,048 columns at a time, two octets a
// lane: weights stand in registers before the rows of x are there. The last block to finish
// chooses, or every block of the kernel that follows for itself: where nothing must be fetched that
// is 2 us less. Work: 2 experts cols operations a row. Bytes: the router once, 1 MB of 128 experts
// and 2,048 columns.
#include "gpu/cuda/early.cuh"
#include "gpu/cuda/expert_fetch.cuh"
#include "gpu/cuda/norm_decode.cuh"
#include "gpu/cuda/router.cuh"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kThreads = 128, kWarps = kThreads / 32;
constexpr uint32_t kOctets = 2, kPassOctets = kThreads * kOctets;

// kPlain: what they come from is f32, whole octets at multiples of 16 bytes.
template <bool kPlain>
__device__ __forceinline__ void load_columns(const float* row, uint32_t octet, uint32_t cols,
                                             float (&v)[8]) {
    if constexpr (kPlain) {
        const auto* const four = reinterpret_cast<const float4*>(row) + octet * 2;
        const float4 a = four[0], b = four[1];
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
        v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    } else {
        load_octet(row, octet, cols, v);
    }
}

// The logits of a block's experts. Where x is still to be normed, the router's weights are
// multiplied by the norm's before and sums by the row's factor afterwards.
template <bool kPlain>
__device__ __forceinline__ void logits(const RouteRows& args, const RouteNorm& norm,
                                       uint32_t block) {
    __shared__ float parts[2][kWarps][kRouteExperts + 1];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, cols = args.cols;
    const uint32_t octets = (cols + 7) / 8, mine = warp * 32 * kOctets + lane;
    const float* const x = norm.x ? norm.x : args.x;
    float w[kRouteExperts][kOctets][8];
    const auto load_router = [&](uint32_t from) {
#pragma unroll
        for (uint32_t i = 0; i < kOctets; ++i) {
            const uint32_t octet = from + 32 * i;
            float by[8] = {};
            if (norm.x && octet < octets) load_columns<kPlain>(norm.weight, octet, cols, by);
#pragma unroll
            for (uint32_t e = 0; e < kRouteExperts; ++e) {
                const uint32_t expert = block * kRouteExperts + e;
                float(&to)[8] = w[e][i];
#pragma unroll
                for (float& value : to) value = 0;
                if (octet >= octets || expert >= args.experts) continue;
                const std::byte* const row = args.router + expert * args.row_bytes;
                if constexpr (kPlain)
                    load_columns<true>(reinterpret_cast<const float*>(row), octet, cols, to);
                else
                    decode_octet(static_cast<WeightType>(args.type), row, octet, cols, to);
#pragma unroll
                for (uint32_t k = 0; k < 8; ++k) to[k] *= norm.x ? by[k] : 1;
            }
        }
    };
    load_router(mine);
    wait_for_kernels_ahead();
    for (uint32_t number = 0; number < args.routes.rows; ++number) {
        float sum[kRouteExperts + 1] = {};  // of logits, and of squares
        for (uint32_t pass = 0; pass < octets; pass += kPassOctets) {
            if (octets > kPassOctets && number + pass > 0) load_router(mine + pass);
#pragma unroll
            for (uint32_t i = 0; i < kOctets; ++i) {
                const uint32_t octet = mine + pass + 32 * i;
                float v[8] = {};
                if (octet < octets) load_columns<kPlain>(x + size_t{number} * cols, octet, cols, v);
#pragma unroll
                for (uint32_t e = 0; e <= kRouteExperts; ++e) {
                    float part = 0;
#pragma unroll
                    for (uint32_t k = 0; k < 8; ++k)
                        part =
                            fmaf(e < kRouteExperts ? w[e % kRouteExperts][i][k] : v[k], v[k], part);
                    sum[e] += part;
                }
            }
        }
        float(&of_warps)[kWarps][kRouteExperts + 1] = parts[number % 2];
#pragma unroll
        for (float& value : sum) value = warp_sum(value);
        if (lane == 0)
#pragma unroll
            for (uint32_t e = 0; e <= kRouteExperts; ++e) of_warps[warp][e] = sum[e];
        __syncthreads();
        const uint32_t e = threadIdx.x, expert = block * kRouteExperts + e;
        if (e >= kRouteExperts || expert >= args.experts) continue;
        float logit = 0, squares = 0;
#pragma unroll
        for (uint32_t i = 0; i < kWarps; ++i) {
            logit += of_warps[i][e];
            squares += of_warps[i][kRouteExperts];
        }
        if (norm.x) logit *= norm_factor(squares, cols, norm.eps);
        args.logits[size_t{number} * args.experts + expert] = logit;
    }
}

// kNormColumns of a row's norm and its codes; each of a row's blocks sums up all of it.
template <bool kWhole>
__device__ __forceinline__ void norm_part(const RouteRows& args, const RouteNorm& norm,
                                          uint32_t number, uint32_t part) {
    __shared__ float sums[kWarps];
    const uint32_t cols = args.cols, mine = part * kThreads + threadIdx.x;
    float w[4], of_mine[4] = {}, sum = 0;
    load_weights<kWhole>(norm.weight, mine, cols, w);
    wait_for_kernels_ahead();
    const float* const row = norm.x + size_t{number} * cols;
#pragma unroll 4
    for (uint32_t quad = threadIdx.x; quad * 4 < cols; quad += kThreads) {
        float v[4];
        load_quad<kWhole>(row, quad, cols, v);
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            sum = fmaf(v[i], v[i], sum);
            of_mine[i] = quad == mine ? v[i] : of_mine[i];
        }
    }
    const float factor = norm_factor(block_sum<kThreads>(sum, sums), cols, norm.eps);
    if (mine < ordered_octets(cols) * 2)
        store_norm<kWhole>(of_mine, w, factor, mine, cols,
                           const_cast<float*>(args.x) + size_t{number} * cols,
                           norm.codes ? norm.codes + number * ordered_row_bytes(cols) : nullptr);
}

template <bool kPlain>
__device__ __forceinline__ void route_decode(const RouteRows& args, const RouteNorm& norm,
                                             const FetchExperts& job) {
    extern __shared__ unsigned long long keys[];  // [slots]
    __shared__ __align__(16) int32_t expert_of[kFewRows * kMostUsed];
    let_next_begin();
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, rows = args.routes.rows;
    const uint32_t parts = route_norm_blocks(args.cols), norms = norm.x ? rows * parts : 0;
    // Any block may be the last.
    KnownExperts<2> known;
    const bool fetches = job.cache.slots > 0 && !job.cache.complete;
    if (fetches) known.load(job);
    if (blockIdx.x < norms)
        norm_part<kPlain>(args, norm, blockIdx.x / parts, blockIdx.x % parts);
    else
        logits<kPlain>(args, norm, blockIdx.x - norms);
    if (!args.finished || !last_block(args.finished)) return;

#pragma unroll 1
    for (uint32_t row = warp; row < rows; row += kWarps)
        choose_routes(args, row, lane, expert_of + row * args.used);
    __syncthreads();
    const uint32_t routes = rows * args.used;
    if (job.cache.complete)  // note_picks counts them
        for (uint32_t i = threadIdx.x; i < routes; i += kThreads) job.cache.picks[i] = expert_of[i];
    if (fetches)
        fetch(
            job, routes, known,
            [&](uint32_t e) { return count_of(expert_of, routes, static_cast<int32_t>(e)); }, keys,
            [&](uint16_t* missed, uint32_t misses) {
                return leave_to_cpu(job, args, expert_of, missed, misses);
            });
}

}  // namespace

// Grid: experts / 4, and route_norm_blocks for each row that is to be normed. Dynamic shared
// memory: 8 bytes a slot.
extern "C" __global__ void __launch_bounds__(kThreads)
    route_decode_f32(const __grid_constant__ RouteRows args, const __grid_constant__ RouteNorm norm,
                     const __grid_constant__ FetchExperts job) {
    route_decode<true>(args, norm, job);
}
extern "C" __global__ void __launch_bounds__(kThreads)
    route_decode_any(const __grid_constant__ RouteRows args, const __grid_constant__ RouteNorm norm,
                     const __grid_constant__ FetchExperts job) {
    route_decode<false>(args, norm, job);
}

}  // namespace granary::gpu::cuda

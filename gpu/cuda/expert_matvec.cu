// SPDX-License-Identifier: GPL-3.0-or-later
// The experts of decode steps, those that are routed and the shared one: gate and up with what is
// between the matrices, then down.
#include "gpu/cuda/matvec.cuh"
#include "gpu/cuda/route_choice.cuh"
#include "gpu/cuda/shared_gate.cuh"

namespace granary::gpu::cuda {
namespace {

struct GateUpFinish {
    __half* out;  // of the route
    uint32_t features;

    __device__ __forceinline__ void begin(uint32_t) const {}
    template <class Total>
    __device__ __forceinline__ void end(uint32_t tile, const Total& total) const {
        const uint32_t g = threadIdx.x % 32, feature = tile * (kMatvecTile / 2) + g;
        if (g >= 8 || feature >= features) return;
        const float gate = total(0, g), up = total(0, g + 8);
        const float value = gate / (1 + __expf(-gate)) * up;
        out[feature] = __low2half(as_half2(pack_half2(value, 0)));
    }
};

__device__ __forceinline__ const std::byte* load_pointer(const std::byte* const* at) {
    return reinterpret_cast<const std::byte*>(
        __ldcg(reinterpret_cast<const unsigned long long*>(at)));
}

// Where the matrices of a route's expert are; null: it is none of this launch. Past the L1 cache,
// which may hold what was there.
__device__ __forceinline__ const ExpertEntry* entry_of(const ExpertMatvec& job, uint32_t route,
                                                       bool is_shared) {
    if (is_shared) return job.shared;
    const int32_t expert = __ldcg(job.expert + route);
    return expert >= 0 && (job.all || job.list.has(expert)) ? job.entries + expert : nullptr;
}

// The expert of a rank, chosen here, by one warp: what all of a block's would do for themselves
// fills the processor.
__device__ __forceinline__ uint32_t chosen_by_block(const RouteChoice& choice, uint32_t rank) {
    static_assert(kMaxExperts <= 512);
    __shared__ uint32_t chosen;
    if (threadIdx.x < 32) {
        const uint32_t expert = choose_one(choice, threadIdx.x, rank);
        if (threadIdx.x == 0) chosen = expert;
    }
    __syncthreads();
    return chosen;
}

// Where gate and up of every expert are, known before any is chosen: by thread expert % blockDim.x.
class KnownMatrices {
  public:
    __device__ __forceinline__ explicit KnownMatrices(const ExpertMatvec& job) {
#pragma unroll
        for (uint32_t i = 0; i < kEach; ++i) {
            const uint32_t expert = threadIdx.x + i * blockDim.x;
            if (expert >= job.choice.experts) continue;
            gate_[i] = load_pointer(&job.entries[expert].gate);
            up_[i] = load_pointer(&job.entries[expert].up);
        }
    }
    // Of all threads of a block.
    __device__ __forceinline__ ExpertEntry of(uint32_t expert) const {
        __shared__ ExpertEntry entry;
#pragma unroll
        for (uint32_t i = 0; i < kEach; ++i)
            if (threadIdx.x + i * blockDim.x == expert) entry = {gate_[i], up_[i], nullptr};
        __syncthreads();
        return entry;
    }

  private:
    static constexpr uint32_t kEach = (kMaxExperts + kLeastMatvecThreads - 1) / kLeastMatvecThreads;
    const std::byte *gate_[kEach], *up_[kEach];
};

// The weight of the shared expert, by one block.
__device__ __forceinline__ void weigh_shared(const ExpertMatvec& job) {
    if (blockIdx.x > 0) return;
    const float weight = shared_weight(job.gate, job.values, job.cols);
    if (threadIdx.x == 0) *job.weight = weight;
}

// silu(gate x) * (up x) as f16: a tile's low rows are eight of gate, its high ones the same of up.
template <bool kAny>
__device__ __forceinline__ void gate_up(const ExpertMatvec& job, const ExpertEntry& entry,
                                        bool is_shared, uint32_t route) {
    extern __shared__ __align__(16) std::byte memory[];
    const uint32_t row = blockIdx.z;
    const ExpertPart& part = job.part[is_shared];
    const Tiles tiles{entry.gate,      entry.up, part.row_bytes[0], part.row_bytes[1], job.features,
                      kMatvecTile / 2, 0,        job.cols,          blockIdx.x,        gridDim.x,
                      job.groups};
    const GateUpFinish finish{reinterpret_cast<__half*>(job.out + route * job.out_bytes),
                              job.features};
    if constexpr (kAny)
        multiply_any(part.type, tiles, job.launch, job.values + size_t{row} * job.cols, 0, 1,
                     finish);
    else
        multiply_blocks<1, kMatvecThreads / 32, false>(
            part.type[0], tiles, job.launch, 0, 1, memory,
            [&] { return job.x + row * job.x_bytes; }, finish);
}
// Lets the next kernel begin behind its wait: the experts, or what they are chosen by, are there
// then.
template <bool kAny>
__device__ __forceinline__ void gate_up(const ExpertMatvec& job) {
    wait_for_kernels_ahead();
    let_next_begin();
    if (blockIdx.y > job.used) return weigh_shared(job);
    const bool is_shared = blockIdx.y == job.used;
    const uint32_t route = blockIdx.z * job.used + blockIdx.y;
    if (const ExpertEntry* const from = entry_of(job, route, is_shared))
        gate_up<kAny>(job, *from, is_shared, route);
}
__device__ __forceinline__ void gate_up_late(const ExpertMatvec& job) {
    const KnownMatrices known(job);
    wait_for_kernels_ahead();
    let_next_begin();
    const uint32_t route = blockIdx.y;
    if (route > job.used) return weigh_shared(job);
    const bool is_shared = route == job.used;
    gate_up<false>(job, is_shared ? *job.shared : known.of(chosen_by_block(job.choice, route)),
                   is_shared, route);
}

struct DownFinish {
    __half* out;  // of the route
    uint32_t features;

    __device__ __forceinline__ void begin(uint32_t) const {}
    template <class Total>
    __device__ __forceinline__ void end(uint32_t tile, const Total& total) const {
        const uint32_t r = threadIdx.x % 32, feature = tile * kMatvecTile + r;
        if (r < kMatvecTile && feature < features)
            out[feature] = __low2half(as_half2(pack_half2(total(0, r), 0)));
    }
};

// What gate_up left becomes codes in shared memory first. behind_wait(), of types of blocks, is
// called once the kernels ahead have ended.
template <bool kAny, class BehindWait>
__device__ __forceinline__ void down(const ExpertMatvec& job, const ExpertEntry* entry,
                                     bool is_shared, uint32_t route,
                                     const BehindWait& behind_wait) {
    extern __shared__ __align__(16) std::byte memory[];
    const std::byte* const weight = load_pointer(&entry->down);
    const ExpertPart& part = job.part[is_shared];
    const Tiles tiles{weight,      weight, part.row_bytes[0], part.row_bytes[0], job.features,
                      kMatvecTile, 8,      job.cols,          blockIdx.x,        gridDim.x,
                      job.groups};
    const auto* const x = reinterpret_cast<const __half*>(job.x + route * job.x_bytes);
    const DownFinish finish{reinterpret_cast<__half*>(job.out + route * job.out_bytes),
                            job.features};
    if constexpr (kAny) {
        multiply_any({part.type[0], part.type[0]}, tiles, job.launch, x, 0, 1, finish);
    } else {
        std::byte* const codes = memory + job.launch.codes_at;
        multiply_blocks<1, kMatvecThreads / 32, false>(
            part.type[0], tiles, job.launch, 0, 1, memory,
            [&] {
                behind_wait();
                for (uint32_t octet = threadIdx.x; octet * 8 < job.cols; octet += blockDim.x) {
                    float v[8];
                    load_values(x, octet, v);
                    store_decode_codes(codes, octet, v);
                }
                __syncthreads();
                return codes;
            },
            finish);
    }
}
// Follows gate_up, so that before its own wait it may read what routes and experts are, or what
// they are chosen by: behind L1, which may hold what they were.
template <bool kAny>
__device__ __forceinline__ void down(const ExpertMatvec& job) {
    let_next_begin();
    const bool is_shared = blockIdx.y == job.used;
    const uint32_t route = blockIdx.z * job.used + blockIdx.y;
    if (const ExpertEntry* const entry = entry_of(job, route, is_shared))
        down<kAny>(job, entry, is_shared, route, [] {});
    else
        wait_for_kernels_ahead();
}
// The first block leaves the routes.
__device__ __forceinline__ void down_late(const ExpertMatvec& job) {
    __shared__ int32_t experts[kMostUsed];
    __shared__ float weights[kMostUsed];
    let_next_begin();
    const uint32_t route = blockIdx.y;
    const bool is_shared = route == job.used, leaves = blockIdx.x + route == 0;
    const ExpertEntry* entry = job.shared;
    if (leaves) {
        if (threadIdx.x < 32) choose_all<kMaxExperts>(job.choice, 0, threadIdx.x, experts, weights);
        __syncthreads();
        entry = job.entries + experts[0];
    } else if (!is_shared) {
        entry = job.entries + chosen_by_block(job.choice, route);
    }
    down<false>(job, entry, is_shared, route, [&] {
        if (leaves && threadIdx.x < job.used) {
            job.choice.routes.expert[threadIdx.x] = job.picks[threadIdx.x] = experts[threadIdx.x];
            job.choice.routes.weight[threadIdx.x] = weights[threadIdx.x];
        }
    });
}

}  // namespace

// NAME takes the types of blocks, gate and up of one; NAME_any takes every type; NAME_late chooses.
extern "C" {
__global__ void GRANARY_BOUNDS expert_matvec_gate_up(const __grid_constant__ ExpertMatvec job) {
    gate_up<false>(job);
}
__global__ void GRANARY_BOUNDS
expert_matvec_gate_up_late(const __grid_constant__ ExpertMatvec job) {
    gate_up_late(job);
}
__global__ void GRANARY_BOUNDS expert_matvec_down_late(const __grid_constant__ ExpertMatvec job) {
    down_late(job);
}
__global__ void GRANARY_WIDE_BOUNDS
expert_matvec_gate_up_any(const __grid_constant__ ExpertMatvec job) {
    gate_up<true>(job);
}
__global__ void GRANARY_BOUNDS expert_matvec_down(const __grid_constant__ ExpertMatvec job) {
    down<false>(job);
}
__global__ void GRANARY_WIDE_BOUNDS
expert_matvec_down_any(const __grid_constant__ ExpertMatvec job) {
    down<true>(job);
}
}

}  // namespace granary::gpu::cuda

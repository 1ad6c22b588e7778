// SPDX-License-Identifier: GPL-3.0-or-later
// The experts of decode steps, those that are routed and the shared one: gate and up with what is
// between the matrices, then down.
#include "gpu/cuda/matvec.cuh"
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

// Where the matrices of a route's expert are; null: it is none of this launch. Past the L1 cache,
// which may hold what was there.
__device__ __forceinline__ const ExpertEntry* entry_of(const ExpertMatvec& job, uint32_t route,
                                                       bool is_shared) {
    if (is_shared) return job.shared;
    const int32_t expert = __ldcg(job.expert + route);
    return expert >= 0 && (job.all || job.list.has(expert)) ? job.entries + expert : nullptr;
}

// The weight of the shared expert, by one block.
__device__ __forceinline__ void weigh_shared(const ExpertMatvec& job) {
    if (blockIdx.x > 0) return;
    const float weight = shared_weight(job.gate, job.values, job.cols);
    if (threadIdx.x == 0) *job.weight = weight;
}

// silu(gate x) * (up x) as f16: a tile's low rows are eight of gate, its high ones the same of up.
// Lets the next kernel begin behind its wait: the experts and their weights are there then.
template <bool kAny>
__device__ __forceinline__ void gate_up(const ExpertMatvec& job) {
    extern __shared__ __align__(16) std::byte memory[];
    wait_for_kernels_ahead();
    let_next_begin();
    if (blockIdx.y > job.used) return weigh_shared(job);
    const bool is_shared = blockIdx.y == job.used;
    const uint32_t row = blockIdx.z, route = row * job.used + blockIdx.y;
    const ExpertEntry* const from = entry_of(job, route, is_shared);
    if (!from) return;
    const ExpertEntry entry = *from;
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

// Follows gate_up, so that before its own wait it may read what routes and experts are: behind L1,
// which may hold what they were. What gate_up left becomes codes in shared memory first.
template <bool kAny>
__device__ __forceinline__ void down(const ExpertMatvec& job) {
    extern __shared__ __align__(16) std::byte memory[];
    let_next_begin();
    const bool is_shared = blockIdx.y == job.used;
    const uint32_t route = blockIdx.z * job.used + blockIdx.y;
    const ExpertEntry* const from = entry_of(job, route, is_shared);
    if (!from) return wait_for_kernels_ahead();
    const auto* const weight = reinterpret_cast<const std::byte*>(
        __ldcg(reinterpret_cast<const unsigned long long*>(&from->down)));
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

}  // namespace

// NAME takes the types of blocks, gate and up of one; NAME_any takes every type.
extern "C" {
__global__ void GRANARY_BOUNDS expert_matvec_gate_up(const __grid_constant__ ExpertMatvec job) {
    gate_up<false>(job);
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

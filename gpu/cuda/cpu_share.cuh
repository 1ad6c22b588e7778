// SPDX-License-Identifier: GPL-3.0-or-later
// How a decode step asks the processor for experts and takes what it answers (gpu/kernels.h,
// CpuShare). Bytes over the link, a layer that asks: 4 hidden each way. A request is seen and an
// answer comes back 2 us after each was written.
#pragma once

#include "gpu/cuda/router.h"
#include "gpu/cuda/rows.cuh"

namespace granary::gpu::cuda {
namespace {

__device__ __forceinline__ void write_for_host(uint64_t* word, uint64_t value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
__device__ __forceinline__ uint64_t read_of_host(const uint64_t* word) {
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

// Of the missed experts of a row (their numbers, in order) leaves the coldest to the processor, as
// many as the table says; the others stay, in order, and are asked for where only the processor can
// bring them. Answers how many. expert_of: the row's choice. By all threads of a block.
__device__ __noinline__ uint32_t ask_cpu(const FetchExperts& job, const RouteRows& rows,
                                         const int32_t* expert_of, uint16_t* missed,
                                         uint32_t misses) {
    __shared__ float heat[CpuRequest::kMost];
    __shared__ bool leaves[CpuRequest::kMost];
    const CpuShare& share = job.share;
    const uint32_t thread = threadIdx.x;
    const uint32_t theirs = min(uint32_t{share.of_misses[misses]}, misses);
    const uint64_t number = job.place->tick * CpuRequest::kLayers + share.layer;
    const uint32_t staged = share.stage ? misses - theirs : 0;
    if (thread == 0) {
        *share.pending = theirs > 0 ? number : CpuRequest::kNone;
        *share.staging = staged > 0 ? number : CpuRequest::kNone;
    }
    if (theirs == 0 && staged == 0 && !share.last) return misses;

    const uint32_t expert = thread < misses ? missed[thread] : 0;
    if (thread < misses) heat[thread] = job.cache.heat[expert];
    __syncthreads();
    bool mine = false;
    if (thread < misses) {
        uint32_t colder = 0;
        for (uint32_t i = 0; i < misses; ++i)
            colder += heat[i] < heat[thread] || (heat[i] == heat[thread] && i < thread);
        mine = colder < theirs;
        leaves[thread] = mine;
        if (mine) {
            uint32_t rank = 0;
            while (expert_of[rank] != static_cast<int32_t>(expert)) ++rank;
            share.request->expert[colder] = static_cast<int32_t>(expert);
            share.request->weight[colder] = rows.routes.weight[rank];
            rows.routes.weight[rank] = 0;
            rows.routes.expert[rank] = -1;
        }
    }
    __syncthreads();
    if (thread < misses && !mine) {
        uint32_t before = 0;
        for (uint32_t i = 0; i < thread; ++i) before += !leaves[i];
        missed[before] = static_cast<uint16_t>(expert);
        if (staged > 0) share.request->stage_expert[before] = static_cast<int32_t>(expert);
    }
    if (thread == 0) {
        share.request->count = theirs;
        share.request->stage_count = staged;
    }
    if (theirs > 0)
        for (uint32_t octet = thread; octet * 8 < rows.cols; octet += blockDim.x) {
            float v[8];
            load_octet(rows.x, octet, rows.cols, v);
            store_octet(share.x, octet, rows.cols, v);
        }
    __threadfence_system();
    __syncthreads();
    if (thread == 0) write_for_host(&share.request->asked, number);
    return misses - theirs;
}

// The same of any number; with none missed there is nothing to ask for, but of the last layer.
__device__ __forceinline__ uint32_t leave_to_cpu(const FetchExperts& job, const RouteRows& rows,
                                                 const int32_t* expert_of, uint16_t* missed,
                                                 uint32_t misses) {
    if (!job.share.request) return misses;
    if (misses > 0 || job.share.last) return ask_cpu(job, rows, expert_of, missed, misses);
    if (threadIdx.x == 0) *job.share.pending = *job.share.staging = CpuRequest::kNone;
    return 0;
}

// Waits for the answer that is pending, if any; the whole block. Answers whether there is one:
// share.sum holds it, to be read past the L1 cache.
__device__ __forceinline__ bool wait_for_cpu(const CpuShare& share) {
    if (!share.request) return false;
    const uint64_t number = *share.pending;
    if (number == CpuRequest::kNone) return false;
    if (threadIdx.x == 0)
        while (read_of_host(&share.request->answered) != number) {
        }
    __syncthreads();
    return true;
}

// The i-th of the experts that the processor brings.
__device__ __forceinline__ ExpertEntry staged_entry(const FetchExperts& job, uint32_t i) {
    const std::byte* const at = job.share.stage + i * job.share.stage_stride;
    return {at, at + job.cache.up_offset, at + job.cache.down_offset};
}

}  // namespace
}  // namespace granary::gpu::cuda

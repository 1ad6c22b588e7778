// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/cuda/delta_net.h"

#include <algorithm>

#include "gpu/cuda/kernels.h"

namespace granary::gpu::cuda {
namespace {

DeltaNet job_of(const DeltaShape& shape, const float* x, const float* alpha, const float* beta,
                uint32_t n, float* state, float* out) {
    DeltaNet job{};
    job.x = x;
    job.alpha = alpha;
    job.beta = beta;
    job.state = state;
    job.out = out;
    job.key_heads = shape.key_heads;
    job.value_heads = shape.value_heads;
    job.dim = shape.head_dim;
    job.norm_eps = shape.norm_eps;
    job.n = n;
    return job;
}
Size3 columns_grid(const DeltaShape& shape) {
    return {(shape.head_dim + kDeltaColumns - 1) / kDeltaColumns, shape.value_heads, 1};
}

}  // namespace

Result<void> CudaKernels::load_delta_net() {
    if (auto r = find("delta_net", {{"delta_net_prepare", &delta_net_.prepare},
                                    {"delta_net_chunk", &delta_net_.chunk},
                                    {"delta_net_decode", &delta_net_.decode}});
        !r)
        return r;
    // Beside what it declares itself; heads have 256 dims at most.
    constexpr size_t kState = 256 * kDeltaColumns * sizeof(float);
    const Driver& driver = device_.context().driver();
    if (const Status status = driver.allow_shared_memory(delta_net_.chunk, kState); status != 0)
        return tl::unexpected(driver.error(status, "cuFuncSetAttribute",
                                           "A kernel cannot have its shared memory",
                                           format_bytes(kState)));
    return {};
}

// Chunks are prepared side by side as far as the scratch reaches.
void CudaKernels::delta_net_prompt(const DeltaShape& shape, const float* x, const float* alpha,
                                   const float* beta, uint32_t first_cell, uint32_t n, float* state,
                                   float* out) {
    DeltaNet job = job_of(shape, x, alpha, beta, n, state, out);
    const size_t chunk_bytes =
        shape.value_heads * delta_prepared_floats(shape.head_dim) * sizeof(float);
    job.prepared = reinterpret_cast<float*>(prompt_scratch_.require(chunk_bytes));
    const auto most = static_cast<uint32_t>(
        std::min<size_t>(prompt_scratch_.bytes / chunk_bytes, kDeltaMostChunks));
    while (job.first < n) {
        job.first_rows = kDeltaCells - (first_cell + job.first) % kDeltaCells;
        const uint32_t left = n - job.first;
        const uint32_t all = left <= job.first_rows
                                 ? 1
                                 : 1 + (left - job.first_rows + kDeltaCells - 1) / kDeltaCells;
        job.chunks = std::min(most, all);
        queue(delta_net_.prepare, {job.chunks, shape.value_heads, 1}, {kDeltaThreads, 1, 1}, 0,
              job);
        queue(delta_net_.chunk, columns_grid(shape), {kDeltaThreads, 1, 1},
              shape.head_dim * kDeltaColumns * static_cast<unsigned>(sizeof(float)), job);
        job.first += job.first_rows + (job.chunks - 1) * kDeltaCells;
    }
}

void CudaKernels::delta_net_decode(const DeltaShape& shape, const float* x, const float* alpha,
                                   const float* beta, uint32_t n, float* state, float* out) {
    queue_early(delta_net_.decode, columns_grid(shape), {kDeltaThreads, 1, 1}, 0,
                job_of(shape, x, alpha, beta, n, state, out));
}

}  // namespace granary::gpu::cuda

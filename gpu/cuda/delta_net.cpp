// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/cuda/delta_net.h"

#include <algorithm>

#include "gpu/cuda/kernels.h"

namespace granary::gpu::cuda {
namespace {

DeltaNet job_of(const DeltaShape& shape, float* x, float* alpha, float* beta, uint32_t n,
                float* state, float* out) {
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
Size3 columns_grid(uint32_t dim, uint32_t value_heads) {
    return {(dim + kDeltaColumns - 1) / kDeltaColumns, value_heads, 1};
}
// From job.first on, of which the first has at most job.first_rows.
uint32_t chunks_of(const DeltaNet& job) {
    const uint32_t left = job.n - job.first;
    return left <= job.first_rows ? 1 : 1 + (left - job.first_rows + kDeltaCells - 1) / kDeltaCells;
}

}  // namespace

Result<void> CudaKernels::load_delta_net() {
    if (auto r = find("delta_net", {{"delta_net_prepare", &delta_net_.prepare},
                                    {"delta_net_chunk", &delta_net_.chunk}});
        !r)
        return r;
    if (auto r = find("delta_net_decode", {{"delta_net_decode", &delta_net_.decode},
                                           {"delta_net_decode_norm", &delta_net_.decode_norm}});
        !r)
        return r;
    if (auto r = find("delta_net_prepare", {{"delta_net_prepare_mma", &delta_net_.prepare_mma},
                                            {"delta_net_convolve_mma", &delta_net_.convolve_mma},
                                            {"delta_net_tail", &delta_net_.tail}});
        !r)
        return r;
    if (auto r = find("delta_net_chunk", {{"delta_net_chunk_mma", &delta_net_.chunk_mma}}); !r)
        return r;
    // Heads have 256 dims at most.
    if (auto r = allow_shared(delta_net_.chunk, 256 * kDeltaColumns * sizeof(float)); !r) return r;
    if (device_.facts().capability < 80) return {};
    const uint32_t shared = attribute(kSharedPerBlock);
    if (shared < std::max(kDeltaMmaPrepareShared, delta_mma_shared(1))) return {};
    for (const Function function : {delta_net_.prepare_mma, delta_net_.convolve_mma})
        if (auto r = allow_shared(function, kDeltaMmaPrepareShared); !r) return r;
    uint32_t stages = kDeltaMmaMostStages;
    while (shared < delta_mma_shared(stages)) --stages;
    if (auto r = allow_shared(delta_net_.chunk_mma, delta_mma_shared(stages)); !r) return r;
    delta_net_.stages = stages;
    return {};
}

void CudaKernels::delta_net_prompt(const DeltaShape& shape, float* x, float* alpha, float* beta,
                                   uint32_t first_cell, uint32_t n, float* state, float* out) {
    if (n == 0) return;
    DeltaNet job = job_of(shape, x, alpha, beta, n, state, out);
    job.first_rows = kDeltaCells - first_cell % kDeltaCells;
    if (!delta_net_by_mma(shape)) return delta_net_pieces(job, first_cell);
    job.chunks = chunks_of(job);
    queue(delta_net_.prepare_mma, {job.chunks, shape.key_heads, 1}, {kDeltaThreads, 1, 1},
          kDeltaMmaPrepareShared, job);
    delta_net_chunks(job);
}

// All rows are prepared in one launch.
void CudaKernels::conv_and_delta_net(const DeltaShape& shape, const DeltaPrompt& prompt,
                                     std::span<const uint32_t> stops,
                                     const std::function<void(size_t)>& stopped) {
    if (!delta_net_by_mma(shape) || shape.taps != kDeltaTaps ||
        reinterpret_cast<uintptr_t>(prompt.kernel) % sizeof(float[kDeltaTaps]) != 0)
        return Kernels::conv_and_delta_net(shape, prompt, stops, stopped);
    const auto job_of_rows = [&](const DeltaPrompt& at) {
        DeltaNet job = job_of(shape, at.convolved, at.alpha, at.beta, at.n, at.state, at.out);
        job.first_rows = kDeltaCells - at.first_cell % kDeltaCells;
        job.chunks = chunks_of(job);
        job.channels = at.x;
        job.kernel = at.kernel;
        job.tail = at.tail;
        return job;
    };
    if (prompt.n > 0) {
        const DeltaNet job = job_of_rows(prompt);
        queue(delta_net_.convolve_mma, {job.chunks, shape.key_heads, 1}, {kDeltaThreads, 1, 1},
              kDeltaMmaPrepareShared, job);
    }
    for_slices(prompt.n, stops, stopped, [&](uint32_t first, uint32_t end) {
        const DeltaNet job = job_of_rows(prompt.rows(shape, first, end));
        // Before the outputs take the place of the channels.
        queue(delta_net_.tail, {(shape.channels() + kDeltaThreads - 1) / kDeltaThreads, 1, 1},
              {kDeltaThreads, 1, 1}, 0, job);
        delta_net_chunks(job);
    });
}

bool CudaKernels::delta_net_by_mma(const DeltaShape& shape) const {
    return delta_net_.stages > 0 && shape.head_dim == kDeltaMmaDim &&
           shape.value_heads <= kDeltaMmaMostValues * shape.key_heads;
}

// What was prepared, in order.
void CudaKernels::delta_net_chunks(const DeltaNet& job) {
    queue(delta_net_.chunk_mma, {kDeltaMmaDim / kDeltaMmaColumns, job.value_heads, 1},
          {kDeltaMmaThreads, 1, 1}, delta_mma_shared(delta_net_.stages), job, delta_net_.stages);
}

// Chunks are prepared side by side as far as the scratch reaches.
void CudaKernels::delta_net_pieces(DeltaNet job, uint32_t first_cell) {
    const size_t chunk_bytes = job.value_heads * delta_prepared_floats(job.dim) * sizeof(float);
    job.prepared = reinterpret_cast<float*>(prompt_scratch_.require(chunk_bytes));
    const auto most = static_cast<uint32_t>(
        std::min<size_t>(prompt_scratch_.bytes / chunk_bytes, kDeltaMostChunks));
    while (job.first < job.n) {
        job.first_rows = kDeltaCells - (first_cell + job.first) % kDeltaCells;
        job.chunks = std::min(most, chunks_of(job));
        queue(delta_net_.prepare, {job.chunks, job.value_heads, 1}, {kDeltaThreads, 1, 1}, 0, job);
        queue(delta_net_.chunk, columns_grid(job.dim, job.value_heads), {kDeltaThreads, 1, 1},
              job.dim * kDeltaColumns * static_cast<unsigned>(sizeof(float)), job);
        job.first += job.first_rows + (job.chunks - 1) * kDeltaCells;
    }
}

void CudaKernels::delta_net_decode(const DeltaShape& shape, const float* x, const float* alpha,
                                   const float* beta, uint32_t n, float* state, float* out) {
    // Which are read only.
    queue_early(delta_net_.decode, columns_grid(shape.head_dim, shape.value_heads),
                {kDeltaThreads, 1, 1}, 0,
                job_of(shape, const_cast<float*>(x), const_cast<float*>(alpha),
                       const_cast<float*>(beta), n, state, out));
}

void CudaKernels::delta_net_decode_and_norm(const DeltaShape& shape, const float* x,
                                            const float* alpha, const float* beta, uint32_t n,
                                            float* state, float* net, const float* weight,
                                            float eps, const float* gate, const Activations& out) {
    if (shape.head_dim != kDeltaMmaDim || !out.decode ||
        !aligned_16(x, state, weight, gate, out.values))
        return Kernels::delta_net_decode_and_norm(shape, x, alpha, beta, n, state, net, weight, eps,
                                                  gate, out);
    queue_early(delta_net_.decode_norm, {shape.value_heads}, {kDeltaHeadThreads}, 0,
                job_of(shape, const_cast<float*>(x), const_cast<float*>(alpha),
                       const_cast<float*>(beta), n, state, nullptr),
                DeltaNorm{weight, eps, gate, out.values, out.codes});
}

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// Folds cuts of attention that were computed side by side, in order. Bound by device memory: reads
// the cuts once, reads and writes the running result once.
#include "gpu/cuda/softmax.cuh"

namespace granary::gpu::cuda {

// A warp a row; blocks of 256 threads, as many as cover job.n * job.heads rows.
extern "C" __global__ void __launch_bounds__(256)
    attention_fold(const __grid_constant__ AttentionPrompt job) {
    const size_t rows = size_t{job.n} * job.heads;
    const size_t row = size_t{blockIdx.x} * 8 + threadIdx.x / 32;
    if (row >= rows) return;
    const uint32_t cells = job.first_cell + static_cast<uint32_t>(row / job.heads) + 1;
    SoftmaxRow& running = job.running.rows[row];
    SoftmaxRow before = running;
    __syncwarp();
    for (uint32_t i = threadIdx.x % 32 * 2; i < job.dim; i += 64) {
        auto* const to = reinterpret_cast<float2*>(job.running.values + row * job.dim + i);
        float2 value = *to;
        SoftmaxRow sums = before;
        for (uint32_t cut = 0; cut < job.cuts; ++cut) {
            const uint32_t begin = (job.first_cut + cut) * kAttentionCut;
            const bool last = begin + kAttentionCut >= job.first_cell + job.n;
            if (begin >= cells && !last) continue;  // the row sees nothing of it
            const size_t at = cut * rows + row;
            const SoftmaxRow newer = job.cut.rows[at];
            Fold folded = begin ? fold(sums, newer) : Fold{newer, 0, 1};
            if (last) {
                const float divide = __frcp_rn(folded.row.sum);
                folded.older *= divide;
                folded.newer *= divide;
            }
            const float2 more = *reinterpret_cast<const float2*>(job.cut.values + at * job.dim + i);
            if (begin)
                value = make_float2(fmaf(value.x, folded.older, more.x * folded.newer),
                                    fmaf(value.y, folded.older, more.y * folded.newer));
            else
                value = make_float2(more.x * folded.newer, more.y * folded.newer);
            sums = folded.row;
        }
        *to = value;
        if (i == 0) running = sums;
    }
}

}  // namespace granary::gpu::cuda

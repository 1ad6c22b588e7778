// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/host/host_kernels.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "gpu/host/attention.h"
#include "gpu/host/codes.h"
#include "gpu/host/linear.h"

namespace granary::gpu::host {
namespace {

// One worker's attention buffers.
size_t worker_floats(uint32_t head_dim) {
    return (std::max(prompt_floats(head_dim), decode_floats(head_dim)) + 15) / 16 * 16;
}

}  // namespace

HostKernels::HostKernels(ThreadPool& pool, const TileKernels* tiles)
    : pool_(pool),
      tiles_(tiles ? *tiles : *tile_kernels().front()),
      workspaces_(std::make_unique<Workspace[]>(pool.threads())) {}

HostKernels::~HostKernels() = default;

size_t HostKernels::code_bytes(uint32_t cols) const {
    return code_row_bytes(cols);
}

size_t HostKernels::scratch_bytes(const AttentionShape& shape, uint32_t max_cells) const {
    const size_t splits = (size_t{max_cells} + kSplitCells - 1) / kSplitCells;
    const size_t partials = kDecodeTokens * shape.heads * splits * partial_floats(shape.head_dim);
    return (pool_.threads() * worker_floats(shape.head_dim) + partials) * sizeof(float);
}

void HostKernels::set_scratch(std::byte* scratch, size_t bytes) {
    scratch_ = scratch;
    scratch_size_ = bytes;
}

float* HostKernels::scratch_of(unsigned worker, uint32_t head_dim) const {
    return reinterpret_cast<float*>(scratch_) + worker * worker_floats(head_dim);
}

float* HostKernels::require_scratch(uint32_t head_dim, size_t floats) const {
    const size_t before = pool_.threads() * worker_floats(head_dim);
    if ((before + floats) * sizeof(float) > scratch_size_) {
        std::fprintf(stderr, "the kernels need %zu bytes of scratch, were handed %zu\n",
                     (before + floats) * sizeof(float), scratch_size_);
        std::abort();  // a fault of this program: scratch_bytes() says what to hand over
    }
    return reinterpret_cast<float*>(scratch_) + before;
}

Workspace& HostKernels::workspace(unsigned worker) {
    return workspaces_[worker];
}

std::unique_ptr<Kernels> make_host_kernels(ThreadPool& pool) {
    return std::make_unique<HostKernels>(pool);
}

}  // namespace granary::gpu::host

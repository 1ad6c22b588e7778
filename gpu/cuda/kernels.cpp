// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/cuda/kernels.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "gpu/cuda/attention_widen.h"
#include "gpu/cuda/device_code.h"
#include "gpu/cuda/expert_matmul.h"
#include "gpu/cuda/router.h"

namespace granary::gpu::cuda {

Result<void> CudaKernels::load() {
    for (const auto load :
         {&CudaKernels::load_rows, &CudaKernels::load_gates, &CudaKernels::load_rope,
          &CudaKernels::load_attention, &CudaKernels::load_delta_net, &CudaKernels::load_router,
          &CudaKernels::load_expert_cache, &CudaKernels::load_matmuls})
        if (auto loaded = (this->*load)(); !loaded) return loaded;
    // Only what was compiled for compute capability 9.0 waits for the kernels ahead of it: code for
    // lower ones, translated by the driver, does not.
    int compiled_for = 0;
    const Driver& driver = device_.context().driver();
    if (driver.api() == Api::cuda && device_.facts().capability >= 90 &&
        driver.function_attribute(&compiled_for, kPtxVersion, rows_.rms_norm) == 0)
        early_ = compiled_for >= 90;
    return {};
}

std::string CudaKernels::beyond(const AttentionShape& attention, const RouterShape& routing) const {
    const auto exceeds = [](const char* what, uint32_t has, uint32_t most) -> std::string {
        if (has <= most) return {};
        return std::to_string(has) + " " + what + ", " + std::to_string(most) + " are the most";
    };
    const uint32_t rotate = attention.rope ? 2 * attention.rope->pairs() : 0;
    for (const std::string& reason :
         {exceeds("experts in a layer", routing.experts, std::min(kMaxExperts, kMostExperts)),
          exceeds("experts for a token", routing.used, kMostUsed),
          exceeds("values in a head", attention.head_dim, kPlainMaxDim),
          exceeds("rotating values in a head", rotate, 2 * kMostRopePairs)})
        if (!reason.empty()) return reason;
    return {};
}

Result<void> CudaKernels::find(std::string_view file, std::initializer_list<Wanted> wanted) {
    auto known = modules_.find(file);
    if (known == modules_.end()) {
        const std::span<const std::byte> code = device_code(file);
        if (code.empty())
            return fail(ErrorKind::unsupported, "This build has no CUDA kernels",
                        std::string(file) + " is missing");
        auto module = Module::load(device_.context().shared_driver(), code);
        if (!module) return tl::unexpected(module.error());
        known = modules_.emplace(file, std::move(*module)).first;
    }
    for (const Wanted& kernel : wanted) {
        const auto function = known->second->function(kernel.name);
        if (!function) return tl::unexpected(function.error());
        *kernel.function = *function;
    }
    return {};
}

Result<void> CudaKernels::find_wgmma(std::string_view file, std::initializer_list<Wanted> wanted) {
    if (device_.facts().capability != 90) return {};
    if (auto loaded = find(file, {}); !loaded) return loaded;
    for (const Wanted& kernel : wanted) {
        const auto function = modules_.find(file)->second->function(kernel.name);
        if (function) *kernel.function = *function;
    }
    return {};
}

Result<void> CudaKernels::allow_shared(Function function, size_t bytes) const {
    const Driver& driver = device_.context().driver();
    const Status status = function ? driver.allow_shared_memory(function, bytes) : 0;
    if (status == 0) return {};
    return tl::unexpected(driver.error(status, "cuFuncSetAttribute",
                                       "A kernel needs more shared memory than there is",
                                       format_bytes(bytes)));
}

uint32_t CudaKernels::attribute(int number) const {
    const SharedContext& context = device_.context();
    int value = 0;
    const Status status = context.driver().device_attribute(&value, number, context.device());
    return status == 0 ? static_cast<uint32_t>(std::max(value, 0)) : 0;
}

std::byte* CudaKernels::Scratch::require(size_t wanted) const {
    if (wanted > bytes) {
        std::fprintf(stderr, "the kernels need %zu bytes of scratch, were handed %zu\n", wanted,
                     bytes);
        std::abort();
    }
    return data;
}

// One operation at a time uses it, but what grows with the context is added: the most of both would
// not grow by the same for each cut.
size_t CudaKernels::scratch_bytes(const AttentionShape& shape, uint32_t max_cells) const {
    return kCounterBytes + decode_route_bytes() + decode_fetch_bytes() +
           attention_decode_scratch(shape, max_cells);
}

void CudaKernels::set_scratch(std::byte* scratch, size_t bytes) {
    const Scratch all{scratch, bytes};
    counters_ = reinterpret_cast<uint32_t*>(all.require(kCounterBytes));
    scratch_ = {scratch + kCounterBytes, bytes - kCounterBytes};
    device_.fill(StreamId::compute, counters_, 0, kCounterBytes);
}

// The same: the largest constant, and the most for each row.
size_t CudaKernels::prompt_scratch_bytes(const AttentionShape& shape, uint32_t experts,
                                         uint32_t used, uint32_t hidden, uint32_t rows) const {
    PromptBytes most;
    for (const PromptBytes& bytes :
         {prompt_route_bytes(experts), prompt_tile_bytes(experts, used, hidden),
          attention_prompt_scratch(shape)}) {
        most.constant = std::max(most.constant, bytes.constant);
        most.per_row = std::max(most.per_row, bytes.per_row);
    }
    return most.constant + rows * most.per_row;
}

void CudaKernels::set_prompt_scratch(std::byte* scratch, size_t bytes) {
    prompt_scratch_ = {scratch, bytes};
}

}  // namespace granary::gpu::cuda

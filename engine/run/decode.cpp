// SPDX-License-Identifier: GPL-3.0-or-later
// The decode loop: one to eight generated tokens pass through all layers in the workspace.
#include "engine/run/pass.h"

namespace granary {

Result<void> decode_step(const RunContext& run, std::byte* kv_base, uint32_t first_cell,
                         std::span<const TokenId> tokens, uint32_t tick) {
    const Model& model = run.model;
    gpu::Kernels& kernels = run.kernels();
    const auto rows = static_cast<uint32_t>(tokens.size());
    const PassBuffers at = run.buffers(run.memory.workspace(), run.workspace.pass, rows);
    const std::span<const int32_t> all_experts = run.memory.experts().numbers();

    auto* const place =
        reinterpret_cast<gpu::DecodePlace*>(run.memory.workspace() + run.workspace.place);
    const gpu::DecodePlace now{kv_base, first_cell, tick};
    run.device.copy(gpu::StreamId::compute, place, &now, sizeof now);
    run.device.copy(gpu::StreamId::compute, at.tokens, tokens.data(), tokens.size_bytes());
    kernels.embed(model.embedding, at.tokens, rows, at.x);
    for (uint32_t n = 0; n < model.facts.layers; ++n) {
        const MoeWeights& moe = model.layers[n].moe;
        const gpu::ExpertCacheView& cache = run.memory.experts().view(n);

        mix(run, n, at, {place});

        kernels.rms_norm(at.x, moe.norm, model.norm_eps, at.norm);
        kernels.route(moe.routing, moe.router, at.norm.values, at.routes);
        if (cache.slots) kernels.fetch_experts(cache, at.routes, moe.shape.used, place);
        kernels.expert_ffn(moe.shape, cache.entries, all_experts, at.routes, at.norm, at.hidden,
                           at.expert_out);
        kernels.combine(at.routes, moe.shape.used, moe.shape.hidden, at.expert_out, at.x);
        add_shared_expert(run, n, at);
    }
    return output_logits(run, at.x, rows);
}

}  // namespace granary

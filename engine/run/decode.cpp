// SPDX-License-Identifier: GPL-3.0-or-later
// The decode loop: one to eight generated tokens pass through all layers in the workspace.
#include <array>

#include "engine/run/pass.h"

namespace granary {

Result<void> decode_step(const RunContext& run, std::byte* kv_base, uint32_t first_cell,
                         std::span<const TokenId> tokens, uint32_t tick) {
    const Model& model = run.model;
    gpu::Kernels& kernels = run.kernels();
    const auto rows = static_cast<uint32_t>(tokens.size());
    const PassBuffers at = run.buffers(run.memory.workspace(), run.workspace.pass, rows);
    const std::span<const int32_t> all_experts = run.memory.experts().numbers();

    run.device.copy(gpu::StreamId::compute, at.tokens, tokens.data(), tokens.size_bytes());
    kernels.embed(model.embedding, at.tokens, rows, at.x);
    for (uint32_t n = 0; n < model.facts.layers; ++n) {
        const AttentionWeights& attention = model.layers[n].attention;
        const MoeWeights& moe = model.layers[n].moe;
        const gpu::KvView kv = run.memory.kv().view(kv_base, n);
        const gpu::ExpertCacheView& cache = run.memory.experts().view(n);

        kernels.rms_norm(at.x, attention.norm, model.norm_eps, at.norm);
        kernels.matmul(std::array{gpu::Matmul{attention.q, at.q}, gpu::Matmul{attention.k, at.k},
                                  gpu::Matmul{attention.v, at.v}},
                       at.norm);
        kernels.rope_store(model.attention, attention.q_norm, attention.k_norm, first_cell, rows,
                           at.q, at.k, at.v, kv);
        kernels.attention_decode(model.attention, at.q, first_cell, kv, at.attention);
        kernels.matmul(std::array{gpu::Matmul{attention.out, at.x, true}}, at.attention);

        kernels.rms_norm(at.x, moe.norm, model.norm_eps, at.norm);
        kernels.route(moe.routing, moe.router, at.norm.values, at.routes);
        if (cache.slots) kernels.fetch_experts(cache, at.routes, moe.shape.used, tick);
        kernels.expert_ffn(moe.shape, cache.entries, all_experts, at.routes, at.norm, at.hidden,
                           at.expert_out);
        kernels.combine(at.routes, moe.shape.used, moe.shape.hidden, at.expert_out, at.x);
    }
    return output_logits(run, at.x, rows);
}

}  // namespace granary

// SPDX-License-Identifier: GPL-3.0-or-later
// The parts of a layer that prompt and decode share: attention or delta net, and shared experts.
#include <array>

#include "engine/run/pass.h"

namespace granary {
namespace {

void attend(const RunContext& run, const AttentionWeights& weights, const gpu::KvView& kv,
            const PassBuffers& at, const MixPlace& place) {
    gpu::Kernels& kernels = run.kernels();
    const gpu::AttentionShape& shape = run.model.attention;
    const bool gated = run.model.facts.gated_queries;
    const uint32_t rows = at.norm.rows;
    kernels.matmul(std::array{gpu::Matmul{weights.q, gated ? at.pairs : at.q},
                              gpu::Matmul{weights.k, at.k}, gpu::Matmul{weights.v, at.v}},
                   at.norm);
    if (gated) kernels.take_queries(shape, at.pairs, rows, at.q);
    kernels.rope_store(shape, weights.q_norm, weights.k_norm, place.first_cell, rows, at.q, at.k,
                       at.v, kv);
    if (place.prompt)
        kernels.attention_prompt(shape, at.q, place.first_cell, kv, at.attention);
    else
        kernels.attention_decode(shape, at.q, place.first_cell, kv, at.attention);
    if (gated) kernels.gate_heads(shape, at.pairs, at.attention);
    kernels.matmul(std::array{gpu::Matmul{weights.out, at.x, true}}, at.attention);
}

void remember(const RunContext& run, const DeltaWeights& weights, std::byte* memory,
              const PassBuffers& at, const MixPlace& place) {
    gpu::Kernels& kernels = run.kernels();
    const gpu::DeltaShape& shape = run.model.facts.delta;
    const uint32_t rows = at.norm.rows;
    float* const tail = reinterpret_cast<float*>(memory);
    float* const state = tail + shape.tail_values();
    kernels.matmul(
        std::array{gpu::Matmul{weights.qkv, at.channels}, gpu::Matmul{weights.gate, at.delta_gate},
                   gpu::Matmul{weights.alpha, at.alpha}, gpu::Matmul{weights.beta, at.beta}},
        at.norm);
    kernels.causal_conv(shape, weights.kernel, at.channels, rows, tail, at.convolved);
    kernels.delta_gates(shape, weights.dt, weights.a, rows, at.alpha, at.beta);
    // The channels are spent: their place takes the output.
    if (place.prompt)
        kernels.delta_net_prompt(shape, at.convolved, at.alpha, at.beta, place.first_cell, rows,
                                 state, at.channels);
    else
        kernels.delta_net_decode(shape, at.convolved, at.alpha, at.beta, rows, state, at.channels);
    kernels.gated_norm(at.channels, weights.head_norm, run.model.norm_eps, shape.head_dim,
                       at.delta_gate, at.delta);
    kernels.matmul(std::array{gpu::Matmul{weights.out, at.x, true}}, at.delta);
}

}  // namespace

void mix(const RunContext& run, uint32_t layer, const PassBuffers& at, const MixPlace& place) {
    const Layer& weights = run.model.layers[layer];
    if (const auto* attention = std::get_if<AttentionWeights>(&weights.mixer)) {
        run.kernels().rms_norm(at.x, attention->norm, run.model.norm_eps, at.norm);
        attend(run, *attention, run.memory.kv().view(place.kv, weights.number), at, place);
    } else if (const auto* delta = std::get_if<DeltaWeights>(&weights.mixer)) {
        run.kernels().rms_norm(at.x, delta->norm, run.model.norm_eps, at.norm);
        remember(run, *delta, run.memory.state(weights.number), at, place);
    }
}

void add_shared_expert(const RunContext& run, uint32_t layer, const PassBuffers& at) {
    const auto& shared = run.model.layers[layer].moe.shared;
    if (!shared) return;
    gpu::Kernels& kernels = run.kernels();
    const auto* const entries =
        reinterpret_cast<const gpu::ExpertEntry*>(run.memory.workspace() + run.workspace.shared);
    const uint32_t hidden = run.model.facts.hidden;
    const int32_t only = 0;
    kernels.route_shared(shared->gate_in, at.norm.values, hidden, at.routes);
    kernels.expert_ffn(shared->shape(), entries + layer, {&only, 1}, at.routes, at.norm, at.shared,
                       at.expert_out);
    kernels.combine(at.routes, 1, hidden, at.expert_out, at.x);
}

}  // namespace granary

// SPDX-License-Identifier: GPL-3.0-or-later
// The parts of a layer that prompt and decode share: attention or delta net, and shared experts.
#include <array>
#include <vector>

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
    run.phase(Phase::attention);
    if (place.decode) {
        kernels.rope_store_and_attend(
            shape, {weights.q_norm, weights.k_norm, at.q, gated ? at.pairs : nullptr, at.k, at.v},
            kv, at.attention);
    } else {
        if (gated)
            kernels.rope_store_of_pairs(shape, weights.q_norm, weights.k_norm, place.first_cell,
                                        rows, at.pairs, at.q, at.k, at.v, kv);
        else
            kernels.rope_store(shape, weights.q_norm, weights.k_norm, place.first_cell, rows, at.q,
                               at.k, at.v, kv);
        kernels.attention_prompt(shape, at.q, place.first_cell, kv, at.attention);
        if (gated) kernels.gate_heads(shape, at.pairs, at.attention);
    }
    run.phase(Phase::dense);
    kernels.matmul(std::array{gpu::Matmul{weights.out, at.x, true}}, at.attention);
}

void remember(const RunContext& run, const DeltaWeights& weights, uint32_t number,
              const PassBuffers& at, const MixPlace& place) {
    gpu::Kernels& kernels = run.kernels();
    const gpu::DeltaShape& shape = run.model.facts.delta;
    const uint32_t rows = at.norm.rows;
    std::byte* const memory = run.memory.state(number);
    float* const tail = reinterpret_cast<float*>(memory);
    float* const state = tail + shape.tail_values();
    const std::array jobs{gpu::Matmul{weights.qkv, at.channels},
                          gpu::Matmul{weights.gate, at.delta_gate},
                          gpu::Matmul{weights.alpha, at.alpha}, gpu::Matmul{weights.beta, at.beta}};
    if (place.decode) {
        kernels.matmul_gates_and_conv(jobs, at.norm, shape,
                                      {weights.dt, weights.a, weights.kernel, at.alpha, at.beta,
                                       at.channels, tail, at.convolved});
        run.phase(Phase::attention);
        kernels.delta_net_decode_and_norm(shape, at.convolved, at.alpha, at.beta, rows, state,
                                          at.channels, weights.head_norm, run.model.norm_eps,
                                          at.delta_gate, at.delta);
    } else {
        kernels.matmul(jobs, at.norm);
        run.phase(Phase::attention);
        kernels.delta_gates(shape, weights.dt, weights.a, rows, at.alpha, at.beta);
        std::vector<uint32_t> stops;
        for (const Checkpoint& checkpoint : place.checkpoints)
            stops.push_back(checkpoint.cells - place.first_cell);
        const uint64_t bytes = delta_place_bytes(shape);
        kernels.conv_and_delta_net(
            shape,
            {weights.kernel, at.channels, tail, at.convolved, at.alpha, at.beta, place.first_cell,
             rows, state, at.channels},
            stops, [&](size_t i) {
                run.device.copy(gpu::StreamId::compute,
                                place.checkpoints[i].state.get() + number * bytes, memory, bytes);
            });
        kernels.gated_norm(at.channels, weights.head_norm, run.model.norm_eps, shape.head_dim,
                           at.delta_gate, at.delta);
    }
    run.phase(Phase::dense);
    kernels.matmul(std::array{gpu::Matmul{weights.out, at.x, true}}, at.delta);
}

}  // namespace

void mix(const RunContext& run, uint32_t layer, const PassBuffers& at, const MixPlace& place) {
    const Layer& weights = run.model.layers[layer];
    run.phase(Phase::dense);
    if (const auto* attention = std::get_if<AttentionWeights>(&weights.mixer)) {
        const KvLayout& kv = run.memory.kv();
        attend(run, *attention,
               place.decode ? kv.view(place.decode, weights.number)
                            : kv.view(place.kv, weights.number),
               at, place);
    } else if (const auto* delta = std::get_if<DeltaWeights>(&weights.mixer)) {
        remember(run, *delta, weights.number, at, place);
    }
}

const float* mixer_norm(const Model& model, uint32_t layer) {
    if (layer == model.facts.layers) return model.output_norm;
    return std::visit([](const auto& weights) { return weights.norm; }, model.layers[layer].mixer);
}

gpu::SharedExpert shared_expert(const RunContext& run, uint32_t layer) {
    const auto& shared = run.model.layers[layer].moe.shared;
    const auto* const entries =
        reinterpret_cast<const gpu::ExpertEntry*>(run.memory.workspace() + run.workspace.shared);
    return {shared->shape(), entries + layer, shared->gate_in};
}

void run_shared_expert(const RunContext& run, uint32_t layer, const PassBuffers& at) {
    const gpu::SharedExpert shared = shared_expert(run, layer);
    gpu::Kernels& kernels = run.kernels();
    const int32_t only = 0;
    run.phase(Phase::experts);
    kernels.route_shared(shared.gate, at.norm.values, run.model.facts.hidden, at.routes);
    kernels.expert_ffn(shared.shape, shared.entry, {&only, 1}, at.routes, at.norm, at.shared,
                       at.expert_out);
}

}  // namespace granary

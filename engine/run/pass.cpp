// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/run/pass.h"

#include <algorithm>
#include <cstring>

namespace granary {

PassBuffers RunContext::buffers(std::byte* base, const PassLayout& at, uint32_t rows) const {
    const ModelFacts& facts = model.facts;
    const bool codes = arithmetic == gpu::Arithmetic::fast;
    const bool decode = base == memory.workspace();  // prompts have theirs in the loan
    const auto floats = [&](uint64_t offset) { return reinterpret_cast<float*>(base + offset); };
    const auto ints = [&](uint64_t offset) { return reinterpret_cast<int32_t*>(base + offset); };
    const auto activations = [&](uint64_t values, uint64_t code, uint32_t n, uint32_t cols) {
        return gpu::Activations{floats(values), codes ? base + code : nullptr, n, cols, decode};
    };
    PassBuffers buffers;
    buffers.tokens = ints(at.tokens);
    buffers.x = floats(at.x);
    buffers.norm = activations(at.norm_values, at.norm_codes, rows, facts.hidden);
    buffers.q = floats(at.q);
    buffers.k = floats(at.k);
    buffers.v = floats(at.v);
    buffers.attention = activations(at.attention_values, at.attention_codes, rows,
                                    facts.attention.heads * facts.attention.head_dim);
    buffers.pairs = floats(at.pairs);
    buffers.channels = floats(at.channels);
    buffers.convolved = floats(at.convolved);
    buffers.alpha = floats(at.alpha);
    buffers.beta = floats(at.beta);
    buffers.delta_gate = floats(at.delta_gate);
    buffers.delta = activations(at.delta_values, at.delta_codes, rows, facts.delta.width());
    buffers.routes = {ints(at.route_expert),
                      floats(at.route_weight),
                      ints(at.route_count),
                      ints(at.route_first),
                      ints(at.route_order),
                      rows,
                      decode};
    buffers.hidden =
        activations(at.hidden_values, at.hidden_codes, rows * facts.experts_used, facts.expert_ffn);
    buffers.shared = activations(at.hidden_values, at.hidden_codes, rows, facts.shared_ffn);
    buffers.expert_out = base + at.expert_out;
    return buffers;
}

void queue_output(const RunContext& run, uint32_t rows) {
    gpu::Kernels& kernels = run.kernels();
    const PassBuffers at = run.buffers(run.memory.workspace(), run.workspace.pass, rows);
    std::byte* const workspace = run.memory.workspace();
    auto* const logits = reinterpret_cast<float*>(workspace + run.workspace.logits);
    auto* const best = reinterpret_cast<int32_t*>(workspace + run.workspace.best);
    const gpu::Matmul job{run.model.output, logits, false};
    kernels.matmul({&job, 1}, at.norm);
    kernels.argmax(logits, rows, run.model.facts.vocab, best);
}

Result<void> bring_output(const RunContext& run, uint32_t rows) {
    const std::byte* const workspace = run.memory.workspace();
    std::byte* const results = run.memory.results();
    run.device.copy(gpu::StreamId::compute, results, workspace + run.workspace.best,
                    rows * sizeof(int32_t));
    run.device.copy(gpu::StreamId::compute, results + kDecodeRows * sizeof(int32_t),
                    workspace + run.workspace.logits,
                    size_t{rows} * run.model.facts.vocab * sizeof(float));
    if (auto r = run.device.synchronize(gpu::StreamId::compute); !r) return r;
    return run.model.file->intact();
}

void RunContext::set_logits(std::span<const float> logits) const {
    const auto best =
        static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    std::memcpy(memory.results(), &best, sizeof best);
    std::memcpy(memory.results() + kDecodeRows * sizeof best, logits.data(), logits.size_bytes());
}

Result<void> output_logits(const RunContext& run, const float* x, uint32_t rows) {
    const PassBuffers at = run.buffers(run.memory.workspace(), run.workspace.pass, rows);
    run.kernels().rms_norm(x, run.model.output_norm, run.model.norm_eps, at.norm);
    queue_output(run, rows);
    return bring_output(run, rows);
}

}  // namespace granary

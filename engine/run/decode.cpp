// SPDX-License-Identifier: GPL-3.0-or-later
// The decode loop: one to eight generated tokens pass through all layers in the workspace. What
// changes from token to token lies in device memory, so that a device that records work can replay
// a step instead of being given it kernel by kernel.
#include <optional>
#include <utility>

#include "engine/run/pass.h"

namespace granary {
namespace {

// complete: every expert has its slot, so that none is brought and none is left to the processor.
void queue_step(const RunContext& run, uint32_t rows, bool complete) {
    const Model& model = run.model;
    gpu::Kernels& kernels = run.kernels();
    PassBuffers at = run.buffers(run.memory.workspace(), run.workspace.pass, rows);
    float* other_x = reinterpret_cast<float*>(run.memory.workspace() + run.workspace.other_x);
    const std::span<const int32_t> all_experts = run.memory.experts().numbers();
    const gpu::DecodePlace* const place = run.place();

    kernels.embed(model.embedding, at.tokens, rows, at.x);
    kernels.rms_norm(at.x, mixer_norm(model, 0), model.norm_eps, at.norm);
    for (uint32_t n = 0; n < model.facts.layers; ++n) {
        const MoeWeights& moe = model.layers[n].moe;
        gpu::ExpertCacheView cache = run.memory.experts().view(n);
        cache.complete = complete;
        const gpu::CpuShare share = run.cpu && !complete ? run.cpu->of_layer(n) : gpu::CpuShare{};

        mix(run, n, at, {place});

        std::optional<gpu::SharedExpert> shared;
        uint32_t used = moe.shape.used;
        if (moe.shared && rows == 1) {
            // One more rank, in the room of the rows that there are not.
            static_assert(kDecodeRows > 1);
            shared = shared_expert(run, n);
            ++used;
        }
        kernels.norm_and_experts(
            at.x, moe.norm, model.norm_eps, at.norm,
            {moe.routing, moe.router, at.routes, cache, place, share, moe.shape, all_experts,
             shared ? &*shared : nullptr, at.hidden, at.expert_out});
        if (moe.shared && !shared) {
            kernels.combine(at.routes, used, moe.shape.hidden, at.expert_out, at.x);
            run_shared_expert(run, n, at);
            used = 1;
        }
        // The norm of what follows: the next layer, or the output.
        float* const x = kernels.combine_and_norm(at.routes, used, moe.shape.hidden, at.expert_out,
                                                  at.x, other_x, mixer_norm(model, n + 1),
                                                  model.norm_eps, at.norm, share);
        if (x != at.x) std::swap(at.x, other_x);
    }
    if (complete)
        kernels.note_picks(run.memory.experts().view(0), run.workspace.table_stride,
                           model.facts.layers, rows * model.facts.experts_used, place);
    queue_output(run, rows);
}

}  // namespace

Result<gpu::RecordingId> record_step(const RunContext& run, uint32_t rows, bool complete) {
    if (auto r = run.device.begin_recording(); !r) return tl::unexpected(r.error());
    queue_step(run, rows, complete);
    return run.device.end_recording();
}

Result<void> decode_step(const RunContext& run, std::byte* kv_base, uint32_t first_cell,
                         std::span<const TokenId> tokens, uint32_t tick) {
    const auto rows = static_cast<uint32_t>(tokens.size());
    const PassBuffers at = run.buffers(run.memory.workspace(), run.workspace.pass, rows);
    const gpu::DecodePlace now{kv_base, first_cell, tick};
    run.device.copy(gpu::StreamId::compute, run.place(), &now, sizeof now);
    run.device.copy(gpu::StreamId::compute, at.tokens, tokens.data(), tokens.size_bytes());
    const bool complete = run.memory.experts().complete();
    const std::optional<gpu::RecordingId> recorded =
        complete ? run.recorded.complete : run.recorded.any;
    bool queued = true;
    if (rows == 1 && recorded)
        queued = run.device.replay(*recorded);
    else
        queue_step(run, rows, complete);
    const bool served = queued && run.cpu && rows == 1 && !complete;
    if (served) run.cpu->serve(run.device.record(gpu::StreamId::compute), tick, run.arithmetic);
    if (auto r = bring_output(run, rows); !r || !served) return r;
    return run.cpu->adapt();
}

}  // namespace granary

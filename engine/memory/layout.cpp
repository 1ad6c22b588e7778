// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/memory/layout.h"

#include <algorithm>
#include <bit>

namespace granary {
namespace {

// Hands out aligned places one behind the other.
class Cursor {
  public:
    explicit Cursor(uint64_t at = 0) : at_(at) {}
    uint64_t take(uint64_t bytes) {
        const uint64_t place = at_;
        at_ = round_up(at_ + bytes, kSlotAlignment);
        return place;
    }
    uint64_t at() const { return at_; }

  private:
    uint64_t at_;
};

}  // namespace

PassLayout pass_layout(const ModelFacts& model, const DeviceFacts& device, uint32_t rows) {
    const uint64_t n = rows;
    const uint64_t routes = n * model.experts_used;
    const uint64_t q_width = uint64_t{model.attention.heads} * model.attention.head_dim;
    const uint64_t kv_width = uint64_t{model.attention.kv_heads} * model.attention.head_dim;
    PassLayout layout;
    layout.rows = rows;
    Cursor at;
    layout.tokens = at.take(n * 4);
    layout.x = at.take(n * model.hidden * 4);
    layout.norm_values = at.take(n * model.hidden * 4);
    layout.norm_codes = at.take(n * device.code_bytes_hidden);
    layout.route_count = at.take(uint64_t{model.experts} * 4);
    layout.route_first = at.take((uint64_t{model.experts} + 1) * 4);

    Cursor attention(at.at());
    layout.q = attention.take(n * q_width * 4);
    layout.k = attention.take(n * kv_width * 4);
    layout.v = attention.take(n * kv_width * 4);
    layout.attention_values = attention.take(n * q_width * 4);
    layout.attention_codes = attention.take(n * device.code_bytes_attention);

    if (model.gated_queries) layout.pairs = attention.take(n * 2 * q_width * 4);

    Cursor delta(at.at());
    if (model.delta_layers) {
        const gpu::DeltaShape& shape = model.delta;
        layout.channels = delta.take(n * shape.channels() * 4);
        layout.convolved = delta.take(n * shape.channels() * 4);
        layout.alpha = delta.take(n * shape.value_heads * 4);
        layout.beta = delta.take(n * shape.value_heads * 4);
        layout.delta_gate = delta.take(n * shape.width() * 4);
        layout.delta_values = delta.take(n * shape.width() * 4);
        layout.delta_codes = delta.take(n * device.code_bytes_delta);
    }

    Cursor experts(at.at());
    layout.route_expert = experts.take(routes * 4);
    layout.route_weight = experts.take(routes * 4);
    layout.route_order = experts.take(routes * 4);
    layout.hidden_values = experts.take(std::max(routes * model.expert_ffn, n * model.shared_ffn) *
                                        device.hidden_value_bytes);
    layout.hidden_codes =
        experts.take(std::max(routes * device.code_bytes_ffn, n * device.code_bytes_shared));
    layout.expert_out = experts.take(routes * model.hidden * device.expert_out_bytes);

    layout.bytes = std::max({attention.at(), delta.at(), experts.at()});
    return layout;
}

LoanLayout loan_layout(const ModelFacts& model, const DeviceFacts& device, uint32_t chunk) {
    LoanLayout layout;
    layout.pass = pass_layout(model, device, chunk);
    layout.scratch = layout.pass.bytes;
    layout.scratch_bytes = device.prompt_scratch_base + chunk * device.prompt_scratch_per_row;
    layout.bytes = layout.scratch + round_up(layout.scratch_bytes, kSlotAlignment);
    if (device.face == gpu::Face::card) {
        layout.entries = layout.bytes;
        layout.bytes += round_up(model.experts * sizeof(gpu::ExpertEntry), kSlotAlignment);
        layout.ring = layout.bytes;
        layout.ring_stride =
            *std::max_element(model.expert_bytes.begin(), model.expert_bytes.end());
        layout.ring_wave = device.ring_wave;
        // Half of a layer's experts, so that the link has work while attention computes.
        layout.ring_waves = device.ring_waves;
        if (layout.ring_wave > 1)
            layout.ring_waves = std::clamp(model.experts / (2 * layout.ring_wave),
                                           device.ring_waves, 2 * device.ring_waves);
        layout.bytes += uint64_t{layout.ring_waves} * layout.ring_wave * layout.ring_stride;
    }
    return layout;
}

uint32_t smaller_chunk(uint32_t chunk) {
    if (chunk <= kSmallestChunk) return 0;
    const uint32_t below = chunk - 1;
    const uint32_t unit = std::max(kSmallestChunk, std::bit_floor(below) / 8);
    return below / unit * unit;
}

WorkspaceLayout workspace_layout(const ModelFacts& model, const DeviceFacts& device,
                                 uint32_t max_context) {
    WorkspaceLayout layout;
    layout.pass = pass_layout(model, device, kDecodeRows);
    layout.scratch_bytes =
        device.scratch_base + divide_up(max_context, gpu::kDecodeCut) * device.scratch_per_cut;
    layout.table_stride = table_layout(model.experts, model.experts_used).bytes;
    Cursor at(layout.pass.bytes);
    layout.other_x = at.take(uint64_t{kDecodeRows} * model.hidden * 4);
    layout.logits = at.take(uint64_t{kDecodeRows} * model.vocab * 4);
    layout.best = at.take(kDecodeRows * 4);
    layout.place = at.take(sizeof(gpu::DecodePlace));
    layout.scratch = at.take(layout.scratch_bytes);
    if (model.shared_ffn) layout.shared = at.take(model.layers * sizeof(gpu::ExpertEntry));
    if (device.face == gpu::Face::card) layout.cpu_worker = at.take(kCpuWorkerBytes);
    layout.tables = at.take(layout.table_stride * model.layers);
    layout.bytes = at.at();
    return layout;
}

TableLayout table_layout(uint32_t experts, uint32_t used) {
    TableLayout layout;
    Cursor at;
    layout.entries = at.take(experts * sizeof(gpu::ExpertEntry));
    layout.home = at.take(experts * sizeof(gpu::ExpertEntry));
    layout.slot_base = at.take(experts * sizeof(std::byte*));
    layout.counters = at.take(3 * sizeof(uint64_t));
    layout.slot_of = at.take(experts * 4ull);
    layout.expert_in = at.take(experts * 4ull);
    layout.heat = at.take(experts * 4ull);
    layout.last_use = at.take(experts * 4ull);
    layout.picks = at.take(size_t{kDecodeRows} * used * sizeof(int32_t));
    layout.usable = at.take(experts);
    layout.bytes = at.at();
    return layout;
}

}  // namespace granary

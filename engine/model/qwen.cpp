// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/model/qwen.h"

#include <algorithm>
#include <cmath>

#include "engine/gguf/printable.h"
#include "engine/memory/layout.h"
#include "engine/model/rope.h"

namespace granary::qwen {

Result<void> read_facts(TensorReader& read, const gguf::File& file, const char* family,
                        Model& model) {
    ModelFacts& facts = model.facts;
    auto name = file.find_string("general.name");
    if (!name) return tl::unexpected(name.error());
    facts.name = gguf::printable(name->value_or(""), 128);
    facts.family = family;
    facts.layers = read.count("block_count", 1, 1024);
    facts.trained_context = read.count("context_length", 1, 1u << 30);
    facts.hidden = read.count("embedding_length", 8, 1u << 17);
    facts.experts = read.count("expert_count", 1, 4096);
    facts.experts_used = read.count("expert_used_count", 1, std::min(facts.experts, 64u));
    const uint32_t dense_ffn = read.count_or("feed_forward_length", 0, 0, 1u << 20);
    facts.expert_ffn = read.count_or("expert_feed_forward_length", dense_ffn, 8, 1u << 17);

    gpu::AttentionShape& attention = model.attention;
    attention.heads = read.count("attention.head_count", 1, 1024);
    attention.kv_heads = read.count_or("attention.head_count_kv", attention.heads, 1, 1024);
    attention.head_dim =
        read.count_or("attention.key_length", facts.hidden / attention.heads, 8, 1024);
    const uint32_t value_dim = read.count_or("attention.value_length", attention.head_dim, 8, 1024);
    facts.rope_dims = read.count_or("rope.dimension_count", attention.head_dim, 2, 1024);
    facts.rope_base = read.real_or("rope.freq_base", 10000.0f);
    facts.rope = read_rope_scaling(read, facts.trained_context);
    attention.scale = 1.0f / std::sqrt(static_cast<float>(attention.head_dim));
    model.norm_eps = read.real("attention.layer_norm_rms_epsilon");
    attention.norm_eps = model.norm_eps;
    facts.vocab = read.rows_of("token_embd.weight", 1u << 22);
    if (read.error()) return tl::unexpected(*read.error());
    if (attention.heads % attention.kv_heads != 0 || attention.head_dim % 8 != 0 ||
        value_dim != attention.head_dim || facts.rope_dims % 2 != 0 ||
        facts.rope_dims > attention.head_dim)
        return fail(ErrorKind::unsupported, "this combination of shapes is not supported",
                    gguf::quoted(file.path()) + ": heads " + std::to_string(attention.heads) + "/" +
                        std::to_string(attention.kv_heads) + ", head sizes " +
                        std::to_string(attention.head_dim) + "/" + std::to_string(value_dim) +
                        ", rotated " + std::to_string(facts.rope_dims));
    attention.rope = gpu::rope_table(facts.rope_dims, facts.rope_base);
    facts.attention = attention;
    return {};
}

void read_ends(TensorReader& read, Model& model) {
    const ModelFacts& facts = model.facts;
    model.embedding = read.matrix("token_embd.weight", facts.vocab, facts.hidden);
    model.output_norm = read.vector("output_norm.weight", facts.hidden);
    model.output = read.has("output.weight")
                       ? read.matrix("output.weight", facts.vocab, facts.hidden)
                       : model.embedding;
}

void read_experts(TensorReader& read, const std::string& prefix, Model& model, MoeWeights& moe) {
    ModelFacts& facts = model.facts;
    const uint32_t hidden = facts.hidden, ffn = facts.expert_ffn;
    moe.router = read.matrix(prefix + "ffn_gate_inp.weight", facts.experts, hidden);
    const bool fused = read.has(prefix + "ffn_gate_up_exps.weight");
    gpu::Weight gate, up;
    if (fused) {
        gate = read.experts(prefix + "ffn_gate_up_exps.weight", facts.experts, 2 * ffn, hidden);
        up = gate;
    } else {
        gate = read.experts(prefix + "ffn_gate_exps.weight", facts.experts, ffn, hidden);
        up = read.experts(prefix + "ffn_up_exps.weight", facts.experts, ffn, hidden);
    }
    const auto down = read.experts(prefix + "ffn_down_exps.weight", facts.experts, hidden, ffn);
    if (read.error()) return;
    moe.shape = {hidden, ffn, facts.experts, facts.experts_used, gate.type, up.type, down.type};
    moe.routing = {facts.experts, facts.experts_used, true, 1.0f};
    moe.gate_bytes = ffn * gpu::row_bytes(gate.type, hidden);
    moe.up_bytes = ffn * gpu::row_bytes(up.type, hidden);
    moe.down_bytes = hidden * gpu::row_bytes(down.type, ffn);
    moe.up_offset = round_up(moe.gate_bytes, kPartAlignment);
    moe.down_offset = round_up(moe.up_offset + moe.up_bytes, kPartAlignment);
    if (fused) up.data += moe.gate_bytes;
    const uint64_t gate_step = fused ? moe.gate_bytes + moe.up_bytes : moe.gate_bytes;
    const uint64_t up_step = fused ? gate_step : moe.up_bytes;
    for (uint64_t e = 0; e < facts.experts; ++e)
        moe.home.push_back(
            {gate.data + e * gate_step, up.data + e * up_step, down.data + e * moe.down_bytes});
    facts.expert_bytes.push_back(round_up(moe.down_offset + moe.down_bytes, kSlotAlignment));
    facts.row_bytes += facts.expert_bytes.back();
}

void sum_up(Model& model) {
    ModelFacts& facts = model.facts;
    for (const Model::Fixed& fixed : model.fixed())
        facts.fixed_bytes += round_up(fixed.bytes, kSlotAlignment);
    facts.output_bytes = facts.vocab * gpu::row_bytes(model.output.type, facts.hidden);
    facts.host_bytes = facts.vocab * gpu::row_bytes(model.embedding.type, facts.hidden);
    facts.kv_bytes_per_token = uint64_t{facts.layers - facts.delta_layers} * 2 *
                               facts.attention.kv_heads * facts.attention.head_dim * 2;
    facts.state_bytes = facts.delta_layers * delta_place_bytes(facts.delta);
}

}  // namespace granary::qwen

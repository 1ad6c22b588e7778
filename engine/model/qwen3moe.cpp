// SPDX-License-Identifier: GPL-3.0-or-later
// Qwen3-MoE: every layer is grouped-query attention (RMS norm on each q and k head, NEOX rotation
// over the whole head) and a mixture of experts (softmax router, weights normalised over the
// chosen ones), no shared expert.
#include <algorithm>
#include <array>
#include <cmath>

#include "engine/gguf/printable.h"
#include "engine/memory/layout.h"
#include "engine/model/model.h"
#include "engine/model/tensors.h"

namespace granary {
namespace {

constexpr std::array<std::string_view, 3> kTensors{"token_embd.weight", "output_norm.weight",
                                                   "output.weight"};
constexpr std::array<std::string_view, 12> kBlockTensors{
    "attn_norm.weight",    "attn_q.weight",        "attn_k.weight",      "attn_v.weight",
    "attn_output.weight",  "attn_q_norm.weight",   "attn_k_norm.weight", "ffn_norm.weight",
    "ffn_gate_inp.weight", "ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight"};

}  // namespace

Result<Model> load_qwen3moe(std::shared_ptr<const gguf::File> file) {
    TensorReader read(*file, "qwen3moe");
    Model model;
    model.file = file;
    ModelFacts& facts = model.facts;
    auto name = file->find_string("general.name");
    if (!name) return tl::unexpected(name.error());
    facts.name = gguf::printable(name->value_or(""), 128);
    facts.family = "qwen3moe";
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
    attention.rope_dims = read.count_or("rope.dimension_count", attention.head_dim, 2, 1024);
    attention.rope_base = read.real_or("rope.freq_base", 10000.0f);
    attention.scale = 1.0f / std::sqrt(static_cast<float>(attention.head_dim));
    model.norm_eps = read.real("attention.layer_norm_rms_epsilon");
    attention.norm_eps = model.norm_eps;
    const std::string scaling = read.text_or("rope.scaling.type", "none");
    if (scaling == "linear")
        attention.rope_scale = 1.0f / read.real("rope.scaling.factor");
    else if (scaling != "none")
        read.set_error({ErrorKind::unsupported, "this rotation scaling is not supported",
                        "qwen3moe.rope.scaling.type is " + gguf::quoted(scaling, 64),
                        "Supported: none, linear"});
    read.allow_only(kTensors, kBlockTensors, facts.layers);
    facts.vocab = read.rows_of("token_embd.weight", 1u << 22);
    if (read.error()) return tl::unexpected(*read.error());
    if (attention.heads % attention.kv_heads != 0 || attention.head_dim % 8 != 0 ||
        value_dim != attention.head_dim || attention.rope_dims % 2 != 0 ||
        attention.rope_dims > attention.head_dim)
        return fail(ErrorKind::unsupported, "this combination of shapes is not supported",
                    gguf::quoted(file->path()) + ": heads " + std::to_string(attention.heads) +
                        "/" + std::to_string(attention.kv_heads) + ", head sizes " +
                        std::to_string(attention.head_dim) + "/" + std::to_string(value_dim) +
                        ", rotated " + std::to_string(attention.rope_dims));
    facts.attention = attention;

    const uint32_t hidden = facts.hidden;
    const uint32_t q_width = attention.heads * attention.head_dim;
    const uint32_t kv_width = attention.kv_heads * attention.head_dim;
    model.embedding = read.matrix("token_embd.weight", facts.vocab, hidden);
    model.output_norm = read.vector("output_norm.weight", hidden);
    model.output = read.has("output.weight") ? read.matrix("output.weight", facts.vocab, hidden)
                                             : model.embedding;
    for (uint32_t n = 0; n < facts.layers && !read.error(); ++n) {
        const std::string prefix = "blk." + std::to_string(n) + ".";
        Layer layer;
        AttentionWeights& a = layer.attention;
        a.norm = read.vector(prefix + "attn_norm.weight", hidden);
        a.q = read.matrix(prefix + "attn_q.weight", q_width, hidden);
        a.k = read.matrix(prefix + "attn_k.weight", kv_width, hidden);
        a.v = read.matrix(prefix + "attn_v.weight", kv_width, hidden);
        a.out = read.matrix(prefix + "attn_output.weight", hidden, q_width);
        a.q_norm = read.vector(prefix + "attn_q_norm.weight", attention.head_dim);
        a.k_norm = read.vector(prefix + "attn_k_norm.weight", attention.head_dim);

        MoeWeights& moe = layer.moe;
        moe.norm = read.vector(prefix + "ffn_norm.weight", hidden);
        moe.router = read.matrix(prefix + "ffn_gate_inp.weight", facts.experts, hidden);
        const auto gate =
            read.experts(prefix + "ffn_gate_exps.weight", facts.experts, facts.expert_ffn, hidden);
        const auto up =
            read.experts(prefix + "ffn_up_exps.weight", facts.experts, facts.expert_ffn, hidden);
        const auto down =
            read.experts(prefix + "ffn_down_exps.weight", facts.experts, hidden, facts.expert_ffn);
        if (read.error()) break;
        moe.shape = {hidden,    facts.expert_ffn, facts.experts, facts.experts_used,
                     gate.type, up.type,          down.type};
        moe.routing = {facts.experts, facts.experts_used, true, 1.0f};
        moe.gate_bytes = facts.expert_ffn * gpu::row_bytes(gate.type, hidden);
        moe.up_bytes = facts.expert_ffn * gpu::row_bytes(up.type, hidden);
        moe.down_bytes = hidden * gpu::row_bytes(down.type, facts.expert_ffn);
        moe.up_offset = round_up(moe.gate_bytes, kPartAlignment);
        moe.down_offset = round_up(moe.up_offset + moe.up_bytes, kPartAlignment);
        for (uint64_t e = 0; e < facts.experts; ++e)
            moe.home.push_back({gate.data + e * moe.gate_bytes, up.data + e * moe.up_bytes,
                                down.data + e * moe.down_bytes});
        facts.expert_bytes.push_back(round_up(moe.down_offset + moe.down_bytes, kSlotAlignment));
        facts.row_bytes += facts.expert_bytes.back();
        model.layers.push_back(std::move(layer));
    }
    if (read.error()) return tl::unexpected(*read.error());
    for (const Model::Fixed& fixed : model.fixed())
        facts.fixed_bytes += round_up(fixed.bytes, kSlotAlignment);
    facts.host_bytes = facts.vocab * gpu::row_bytes(model.embedding.type, hidden);
    facts.kv_bytes_per_token = uint64_t{facts.layers} * 2 * kv_width * 2;
    return model;
}

}  // namespace granary

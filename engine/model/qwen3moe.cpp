// SPDX-License-Identifier: GPL-3.0-or-later
// Qwen3-MoE: every layer is grouped-query attention (RMS norm on each q and k head, NEOX rotation
// over the whole head) and a mixture of experts (softmax router, weights normalised over the
// chosen ones), no shared expert.
#include <array>

#include "engine/model/qwen.h"

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
    if (auto r = qwen::read_facts(read, *file, "qwen3moe", model); !r)
        return tl::unexpected(r.error());
    const ModelFacts& facts = model.facts;
    const gpu::AttentionShape& attention = facts.attention;
    read.allow_only(kTensors, kBlockTensors, facts.layers);
    if (read.error()) return tl::unexpected(*read.error());

    const uint32_t hidden = facts.hidden;
    const uint32_t q_width = attention.heads * attention.head_dim;
    const uint32_t kv_width = attention.kv_heads * attention.head_dim;
    qwen::read_ends(read, model);
    for (uint32_t n = 0; n < facts.layers && !read.error(); ++n) {
        const std::string prefix = "blk." + std::to_string(n) + ".";
        Layer layer;
        AttentionWeights a;
        a.norm = read.vector(prefix + "attn_norm.weight", hidden);
        a.q = read.matrix(prefix + "attn_q.weight", q_width, hidden);
        a.k = read.matrix(prefix + "attn_k.weight", kv_width, hidden);
        a.v = read.matrix(prefix + "attn_v.weight", kv_width, hidden);
        a.out = read.matrix(prefix + "attn_output.weight", hidden, q_width);
        a.q_norm = read.vector(prefix + "attn_q_norm.weight", attention.head_dim);
        a.k_norm = read.vector(prefix + "attn_k_norm.weight", attention.head_dim);

        layer.mixer = a;
        layer.number = n;
        layer.moe.norm = read.vector(prefix + "ffn_norm.weight", hidden);
        qwen::read_experts(read, prefix, model, layer.moe);
        model.layers.push_back(std::move(layer));
    }
    if (read.error()) return tl::unexpected(*read.error());
    qwen::sum_up(model);
    return model;
}

}  // namespace granary

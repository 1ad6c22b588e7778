// SPDX-License-Identifier: GPL-3.0-or-later
// Qwen3.5-MoE: three of four layers are gated delta nets with a short convolution, every fourth is
// grouped-query attention with gated output; each has routed experts and one shared expert behind
// a gate. Files hold the value heads tiled: value head h belongs to key head h % key_heads.
// Prediction blocks (nextn_predict_layers) stand behind the layers and are not used.
#include <array>

#include "engine/gguf/printable.h"
#include "engine/model/qwen.h"

namespace granary {
namespace {

constexpr std::array<std::string_view, 3> kTensors{"token_embd.weight", "output_norm.weight",
                                                   "output.weight"};
constexpr std::array<std::string_view, 26> kBlockTensors{"attn_norm.weight",
                                                         "attn_q.weight",
                                                         "attn_k.weight",
                                                         "attn_v.weight",
                                                         "attn_output.weight",
                                                         "attn_q_norm.weight",
                                                         "attn_k_norm.weight",
                                                         "attn_qkv.weight",
                                                         "attn_gate.weight",
                                                         "ssm_conv1d.weight",
                                                         "ssm_dt.bias",
                                                         "ssm_a",
                                                         "ssm_beta.weight",
                                                         "ssm_alpha.weight",
                                                         "ssm_norm.weight",
                                                         "ssm_out.weight",
                                                         "post_attention_norm.weight",
                                                         "ffn_gate_inp.weight",
                                                         "ffn_gate_exps.weight",
                                                         "ffn_up_exps.weight",
                                                         "ffn_gate_up_exps.weight",
                                                         "ffn_down_exps.weight",
                                                         "ffn_gate_inp_shexp.weight",
                                                         "ffn_gate_shexp.weight",
                                                         "ffn_up_shexp.weight",
                                                         "ffn_down_shexp.weight"};

AttentionWeights read_attention(TensorReader& read, const std::string& prefix,
                                const ModelFacts& facts) {
    const gpu::AttentionShape& shape = facts.attention;
    const uint32_t q_width = shape.heads * shape.head_dim;
    const uint32_t kv_width = shape.kv_heads * shape.head_dim;
    AttentionWeights a;
    a.norm = read.vector(prefix + "attn_norm.weight", facts.hidden);
    a.q = read.matrix(prefix + "attn_q.weight", 2 * q_width, facts.hidden);
    a.k = read.matrix(prefix + "attn_k.weight", kv_width, facts.hidden);
    a.v = read.matrix(prefix + "attn_v.weight", kv_width, facts.hidden);
    a.out = read.matrix(prefix + "attn_output.weight", facts.hidden, q_width);
    a.q_norm = read.vector(prefix + "attn_q_norm.weight", shape.head_dim);
    a.k_norm = read.vector(prefix + "attn_k_norm.weight", shape.head_dim);
    return a;
}

DeltaWeights read_delta(TensorReader& read, const std::string& prefix, const ModelFacts& facts) {
    const gpu::DeltaShape& shape = facts.delta;
    DeltaWeights d;
    d.norm = read.vector(prefix + "attn_norm.weight", facts.hidden);
    d.qkv = read.matrix(prefix + "attn_qkv.weight", shape.channels(), facts.hidden);
    d.gate = read.matrix(prefix + "attn_gate.weight", shape.width(), facts.hidden);
    d.alpha = read.matrix(prefix + "ssm_alpha.weight", shape.value_heads, facts.hidden);
    d.beta = read.matrix(prefix + "ssm_beta.weight", shape.value_heads, facts.hidden);
    d.kernel = read.table(prefix + "ssm_conv1d.weight", shape.channels(), shape.taps);
    d.dt = read.vector(prefix + "ssm_dt.bias", shape.value_heads);
    d.a = read.vector(prefix + "ssm_a", shape.value_heads);
    d.head_norm = read.vector(prefix + "ssm_norm.weight", shape.head_dim);
    d.out = read.matrix(prefix + "ssm_out.weight", facts.hidden, shape.width());
    return d;
}

SharedExpert read_shared(TensorReader& read, const std::string& prefix, const ModelFacts& facts) {
    SharedExpert shared;
    shared.gate_in = read.table(prefix + "ffn_gate_inp_shexp.weight", 1, facts.hidden);
    shared.gate = read.matrix(prefix + "ffn_gate_shexp.weight", facts.shared_ffn, facts.hidden);
    shared.up = read.matrix(prefix + "ffn_up_shexp.weight", facts.shared_ffn, facts.hidden);
    shared.down = read.matrix(prefix + "ffn_down_shexp.weight", facts.hidden, facts.shared_ffn);
    return shared;
}

}  // namespace

Result<Model> load_qwen35moe(std::shared_ptr<const gguf::File> file) {
    TensorReader read(*file, "qwen35moe");
    Model model;
    model.file = file;
    if (auto r = qwen::read_facts(read, *file, "qwen35moe", model); !r)
        return tl::unexpected(r.error());
    ModelFacts& facts = model.facts;
    const uint32_t unused = read.count_or("nextn_predict_layers", 0, 0, facts.layers - 1);
    facts.layers -= unused;
    facts.gated_queries = true;
    facts.shared_ffn = read.count("expert_shared_feed_forward_length", 8, 1u << 17);
    gpu::DeltaShape& delta = facts.delta;
    delta.taps = read.count("ssm.conv_kernel", 2, 8);
    delta.head_dim = read.count("ssm.state_size", 16, 256);
    delta.key_heads = read.count("ssm.group_count", 1, 1024);
    delta.value_heads = read.count("ssm.time_step_rank", 1, 1024);
    delta.norm_eps = model.norm_eps;
    const uint32_t inner = read.count("ssm.inner_size", 16, 1u << 18);
    read.allow_only(kTensors, kBlockTensors, facts.layers, unused);
    if (read.error()) return tl::unexpected(*read.error());
    if (inner != delta.width() || delta.head_dim % 16 != 0 ||
        delta.value_heads % delta.key_heads != 0)
        return fail(ErrorKind::unsupported, "this combination of shapes is not supported",
                    gguf::quoted(file->path()) + ": delta net of " +
                        std::to_string(delta.key_heads) + "/" + std::to_string(delta.value_heads) +
                        " heads, head size " + std::to_string(delta.head_dim) + ", width " +
                        std::to_string(inner));

    qwen::read_ends(read, model);
    uint32_t attention_layers = 0;
    for (uint32_t n = 0; n < facts.layers && !read.error(); ++n) {
        const std::string prefix = "blk." + std::to_string(n) + ".";
        // Two keys can say which layers attend, and converters differ; the tensors always do.
        const bool attends = read.has(prefix + "attn_q.weight");
        if (attends && read.has(prefix + "attn_qkv.weight"))
            return fail(ErrorKind::invalid_file, "a layer is attention and delta net at once",
                        prefix + "attn_q.weight and " + prefix + "attn_qkv.weight in " +
                            gguf::quoted(file->path()),
                        "The file may be damaged or another variant");
        Layer layer;
        layer.number = attends ? attention_layers++ : facts.delta_layers++;
        if (attends)
            layer.mixer = read_attention(read, prefix, facts);
        else
            layer.mixer = read_delta(read, prefix, facts);
        layer.moe.norm = read.vector(prefix + "post_attention_norm.weight", facts.hidden);
        qwen::read_experts(read, prefix, model, layer.moe);
        layer.moe.shared = read_shared(read, prefix, facts);
        model.layers.push_back(std::move(layer));
    }
    if (read.error()) return tl::unexpected(*read.error());
    qwen::sum_up(model);
    return model;
}

}  // namespace granary

// SPDX-License-Identifier: GPL-3.0-or-later
// Writes small qwen35moe files: random weights, three delta nets and one attention layer.
#pragma once

#include "tests/engine/small_model.h"

namespace granary::test {

struct SmallHybrid {
    uint32_t layers = 4, hidden = 64, heads = 4, kv_heads = 2, head_dim = 16, rope_dims = 8;
    uint32_t experts = 8, used = 2, ffn = 32, shared_ffn = 48;
    uint32_t key_heads = 2, value_heads = 4, delta_dim = 16, taps = 4;
    uint32_t unused = 0;  // prediction blocks behind the layers
    bool fused = false;   // gate and up of all experts in one tensor
    std::function<void(GgufBuilder&)> more;
    std::map<std::string, uint32_t> other;  // other values of keys, without the family
    std::set<std::string> without;          // tensors left out
    // Changes a tensor's bytes after they are made.
    std::function<void(const std::string& name, std::string& bytes)> spoil;

    std::string save(const TempDir& folder, const std::string& name) const {
        write_file(folder.file(name), bytes());
        return folder.file(name);
    }
    std::string bytes() const;
};

inline std::string SmallHybrid::bytes() const {
    GgufBuilder file;
    const auto put = [&](const std::string& key, auto value) {
        if (const auto found = other.find(key); found != other.end())
            file.put("qwen35moe." + key, found->second);
        else
            file.put("qwen35moe." + key, value);
    };
    file.put("general.architecture", std::string("qwen35moe"));
    put("block_count", layers + unused);
    if (unused) put("nextn_predict_layers", unused);
    put("context_length", 4096u);
    put("embedding_length", hidden);
    put("attention.head_count", heads);
    put("attention.head_count_kv", kv_heads);
    put("attention.key_length", head_dim);
    put("attention.value_length", head_dim);
    put("attention.layer_norm_rms_epsilon", 1e-6f);
    put("rope.dimension_count", rope_dims);
    put("rope.freq_base", 10000.0f);
    put("full_attention_interval", 4u);
    put("expert_count", experts);
    put("expert_used_count", used);
    put("expert_feed_forward_length", ffn);
    put("expert_shared_feed_forward_length", shared_ffn);
    put("ssm.conv_kernel", taps);
    put("ssm.state_size", delta_dim);
    put("ssm.group_count", key_heads);
    put("ssm.time_step_rank", value_heads);
    put("ssm.inner_size", value_heads * delta_dim);
    file.put("tokenizer.ggml.model", std::string("gpt2"));
    file.put("tokenizer.ggml.pre", std::string("qwen2"));
    std::vector<std::string> texts;
    std::vector<int32_t> types;
    for (uint32_t i = 0; i < 259; ++i) {
        const char* names[] = {"<|im_end|>", "<|im_start|>", "<|endoftext|>"};
        texts.push_back(i < 256 ? text::byte_to_letter(static_cast<uint8_t>(i)) : names[i - 256]);
        types.push_back(i < 256 ? 1 : 3);
    }
    file.put_array("tokenizer.ggml.tokens", texts);
    file.put_array("tokenizer.ggml.token_type", types);
    file.put_array("tokenizer.ggml.merges", std::vector<std::string>());
    file.put("tokenizer.ggml.eos_token_id", 256u);

    // Every tensor has its own numbers, so that variants differ in nothing else.
    const auto values = [](const std::string& name, uint64_t count, float size, float middle) {
        std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(name)));
        std::string data;
        for (uint64_t i = 0; i < count; ++i)
            data += raw(middle + size * (static_cast<float>(random()) * 0x1p-31f - 1.0f));
        return data;
    };
    const auto put_tensor = [&](const std::string& name, const std::vector<uint64_t>& shape,
                                std::string data) {
        if (spoil) spoil(name, data);
        file.tensor(name, gpu::WeightType::f32, shape, data);
    };
    const auto tensor = [&](const std::string& name, std::vector<uint64_t> shape, float size,
                            float middle = 0) {
        if (without.count(name)) return;
        uint64_t count = 1;
        for (uint64_t n : shape) count *= n;
        put_tensor(name, shape, values(name, count, size, middle));
    };
    const auto matrix = [&](const std::string& name, uint64_t cols, uint64_t rows) {
        tensor(name, {cols, rows}, 1.7f / std::sqrt(static_cast<float>(cols)));
    };
    const auto norm = [&](const std::string& name, uint64_t size) {
        tensor(name, {size}, 0.3f, 1);
    };
    const uint64_t width = uint64_t{value_heads} * delta_dim;
    const uint64_t channels = width + 2ull * key_heads * delta_dim;
    tensor("token_embd.weight", {hidden, 259}, 1);
    norm("output_norm.weight", hidden);
    matrix("output.weight", hidden, 259);
    for (uint32_t n = 0; n < layers; ++n) {
        const std::string block = "blk." + std::to_string(n) + ".";
        norm(block + "attn_norm.weight", hidden);
        if (n % 4 == 3) {
            matrix(block + "attn_q.weight", hidden, 2ull * heads * head_dim);
            matrix(block + "attn_k.weight", hidden, uint64_t{kv_heads} * head_dim);
            matrix(block + "attn_v.weight", hidden, uint64_t{kv_heads} * head_dim);
            matrix(block + "attn_output.weight", uint64_t{heads} * head_dim, hidden);
            norm(block + "attn_q_norm.weight", head_dim);
            norm(block + "attn_k_norm.weight", head_dim);
        } else {
            matrix(block + "attn_qkv.weight", hidden, channels);
            matrix(block + "attn_gate.weight", hidden, width);
            tensor(block + "ssm_conv1d.weight", {taps, channels}, 0.7f);
            tensor(block + "ssm_dt.bias", {value_heads}, 1);
            tensor(block + "ssm_a", {value_heads}, 0.2f, -0.3f);
            matrix(block + "ssm_beta.weight", hidden, value_heads);
            matrix(block + "ssm_alpha.weight", hidden, value_heads);
            norm(block + "ssm_norm.weight", delta_dim);
            matrix(block + "ssm_out.weight", width, hidden);
        }
        norm(block + "post_attention_norm.weight", hidden);
        matrix(block + "ffn_gate_inp.weight", hidden, experts);
        const uint64_t expert_values = uint64_t{hidden} * ffn;
        const float size = 1.7f / std::sqrt(static_cast<float>(hidden));
        const std::string gate = values(block + "gate", expert_values * experts, size, 0);
        const std::string up = values(block + "up", expert_values * experts, size, 0);
        if (fused) {
            std::string both;
            for (uint64_t e = 0; e < experts; ++e)
                both += gate.substr(e * expert_values * 4, expert_values * 4) +
                        up.substr(e * expert_values * 4, expert_values * 4);
            put_tensor(block + "ffn_gate_up_exps.weight", {hidden, 2ull * ffn, experts}, both);
        } else {
            put_tensor(block + "ffn_gate_exps.weight", {hidden, ffn, experts}, gate);
            put_tensor(block + "ffn_up_exps.weight", {hidden, ffn, experts}, up);
        }
        tensor(block + "ffn_down_exps.weight", {ffn, hidden, experts},
               1.7f / std::sqrt(static_cast<float>(ffn)));
        tensor(block + "ffn_gate_inp_shexp.weight", {hidden}, 0.2f);
        matrix(block + "ffn_gate_shexp.weight", hidden, shared_ffn);
        matrix(block + "ffn_up_shexp.weight", hidden, shared_ffn);
        matrix(block + "ffn_down_shexp.weight", shared_ffn, hidden);
    }
    for (uint32_t n = layers; n < layers + unused; ++n) {
        const std::string block = "blk." + std::to_string(n) + ".";
        norm(block + "attn_norm.weight", hidden);
        matrix(block + "nextn.eh_proj.weight", 2ull * hidden, hidden);
        norm(block + "nextn.enorm.weight", hidden);
    }
    if (more) more(file);
    return file.bytes();
}

}  // namespace granary::test

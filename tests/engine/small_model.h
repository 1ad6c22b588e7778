// SPDX-License-Identifier: GPL-3.0-or-later
// Writes small qwen3moe files of any shape, sound unless a test says otherwise: random weights, a
// vocabulary of the 256 bytes and a few special tokens, ChatML.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "engine/text/byte_alphabet.h"
#include "gpu/host/half.h"
#include "tests/gguf/gguf_builder.h"

namespace granary::test {

inline constexpr int32_t kTurnEnd = 256, kTurnBegin = 257;  // <|im_end|>, <|im_start|>

struct SmallModel {
    using Type = gpu::WeightType;
    uint32_t layers = 2, hidden = 64, heads = 4, kv_heads = 2, head_dim = 16, rope_dims = 0;
    uint32_t experts = 8, used = 2, ffn = 32, rows = 259, tokens = 259, context = 4096;
    Type dense = Type::f32, router = Type::f32, norms = Type::f32, gate_up = Type::f32,
         down = Type::f32;
    bool tied = false;
    uint32_t seed = 1;
    std::set<std::string> without;                        // keys and tensors left out
    std::function<void(GgufBuilder&)> more;               // keys and tensors put in
    std::map<std::string, std::vector<uint64_t>> shapes;  // other shapes than expected
    // Changes a tensor's bytes after they are made.
    std::function<void(const std::string& name, std::string& bytes)> spoil;

    std::string bytes() const;
    std::string save(const TempDir& folder, const std::string& name) const {
        write_file(folder.file(name), bytes());
        return folder.file(name);
    }
};

// Weights of about 0.3 / sqrt(cols) * `size`, in `type`: of block formats those whose scale is an
// f16 in front of the codes.
inline std::string random_weights(gpu::WeightType type, uint64_t count, float size,
                                  std::mt19937& random) {
    using Type = gpu::WeightType;
    const auto uniform = [&] { return static_cast<float>(random()) * 0x1p-31f - 1.0f; };
    std::string bytes;
    const auto append = [&](const auto& value) {
        bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    };
    if (type == Type::f32 || type == Type::f16 || type == Type::bf16) {
        for (uint64_t i = 0; i < count; ++i) {
            const float x = size * uniform();
            if (type == Type::f32) append(x);
            if (type == Type::f16) append(gpu::host::float_to_half(x));
            if (type == Type::bf16) {
                uint32_t bits;
                std::memcpy(&bits, &x, 4);
                append(static_cast<uint16_t>(bits >> 16));
            }
        }
        return bytes;
    }
    const gpu::WeightTypeInfo& info = gpu::weight_type_info(type);
    for (uint64_t i = 0; i < count; i += info.block_elements) {
        append(gpu::host::float_to_half(size / (type == Type::q8_0 ? 127.0f : 8.0f)));
        for (uint32_t b = 2; b < info.block_bytes; ++b) bytes += static_cast<char>(random() >> 16);
    }
    return bytes;
}

inline std::string SmallModel::bytes() const {
    GgufBuilder file;
    const auto put = [&](const std::string& key, const auto& value) {
        if (!without.count(key)) file.put(key, value);
    };
    put("general.architecture", std::string("qwen3moe"));
    put("qwen3moe.block_count", layers);
    put("qwen3moe.context_length", context);
    put("qwen3moe.embedding_length", hidden);
    put("qwen3moe.attention.head_count", heads);
    put("qwen3moe.attention.head_count_kv", kv_heads);
    put("qwen3moe.attention.key_length", head_dim);
    put("qwen3moe.attention.value_length", head_dim);
    if (rope_dims) put("qwen3moe.rope.dimension_count", rope_dims);
    put("qwen3moe.rope.freq_base", 10000.0f);
    put("qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f);
    put("qwen3moe.expert_count", experts);
    put("qwen3moe.expert_used_count", used);
    put("qwen3moe.expert_feed_forward_length", ffn);
    put("tokenizer.ggml.model", std::string("gpt2"));
    put("tokenizer.ggml.pre", std::string("qwen2"));
    std::vector<std::string> texts;
    std::vector<int32_t> types;
    for (uint32_t i = 0; i < tokens; ++i) {
        const char* names[] = {"<|im_end|>", "<|im_start|>", "<|endoftext|>", "<think>"};
        texts.push_back(i < 256   ? text::byte_to_letter(static_cast<uint8_t>(i))
                        : i < 260 ? names[i - 256]
                                  : "token " + std::to_string(i));
        types.push_back(i < 256 ? 1 : i < 259 ? 3 : i == 259 ? 4 : 1);
    }
    if (!without.count("tokenizer.ggml.tokens")) file.put_array("tokenizer.ggml.tokens", texts);
    if (!without.count("tokenizer.ggml.token_type"))
        file.put_array("tokenizer.ggml.token_type", types);
    if (!without.count("tokenizer.ggml.merges"))
        file.put_array("tokenizer.ggml.merges", std::vector<std::string>());
    put("tokenizer.ggml.eos_token_id", 256u);
    put("tokenizer.chat_template",
        std::string(
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
            "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"));

    std::mt19937 random(seed);
    const auto tensor = [&](const std::string& name, Type type, std::vector<uint64_t> shape,
                            float size) {
        if (without.count(name)) return;
        if (const auto other = shapes.find(name); other != shapes.end()) shape = other->second;
        uint64_t count = 1;
        for (uint64_t n : shape) count *= n;
        std::string data = random_weights(type, count, size, random);
        if (spoil) spoil(name, data);
        file.tensor(name, type, shape, data);
    };
    const auto norm = [&](const std::string& name, uint64_t size) {
        if (without.count(name)) return;
        std::vector<uint64_t> shape{size};
        if (const auto other = shapes.find(name); other != shapes.end()) shape = other->second;
        std::string data;
        uint64_t count = 1;
        for (uint64_t n : shape) count *= n;
        for (uint64_t i = 0; i < count; ++i)
            data += norms == Type::f32 ? raw(1.0f) : raw(gpu::host::float_to_half(1.0f));
        if (spoil) spoil(name, data);
        file.tensor(name, norms, shape, data);
    };
    const auto matrix_size = [](uint64_t cols) { return 1.7f / std::sqrt(float(cols)); };
    const uint64_t q = uint64_t{heads} * head_dim, kv = uint64_t{kv_heads} * head_dim;
    tensor("token_embd.weight", dense, {hidden, rows}, 1.0f);
    norm("output_norm.weight", hidden);
    if (!tied) tensor("output.weight", dense, {hidden, rows}, matrix_size(hidden));
    for (uint32_t n = 0; n < layers; ++n) {
        const std::string block = "blk." + std::to_string(n) + ".";
        norm(block + "attn_norm.weight", hidden);
        tensor(block + "attn_q.weight", dense, {hidden, q}, matrix_size(hidden));
        tensor(block + "attn_k.weight", dense, {hidden, kv}, matrix_size(hidden));
        tensor(block + "attn_v.weight", dense, {hidden, kv}, matrix_size(hidden));
        tensor(block + "attn_output.weight", dense, {q, hidden}, matrix_size(q));
        norm(block + "attn_q_norm.weight", head_dim);
        norm(block + "attn_k_norm.weight", head_dim);
        norm(block + "ffn_norm.weight", hidden);
        tensor(block + "ffn_gate_inp.weight", router, {hidden, experts}, matrix_size(hidden));
        tensor(block + "ffn_gate_exps.weight", gate_up, {hidden, ffn, experts},
               matrix_size(hidden));
        tensor(block + "ffn_up_exps.weight", gate_up, {hidden, ffn, experts}, matrix_size(hidden));
        tensor(block + "ffn_down_exps.weight", down, {ffn, hidden, experts}, matrix_size(ffn));
    }
    if (more) more(file);
    return file.bytes();
}

}  // namespace granary::test

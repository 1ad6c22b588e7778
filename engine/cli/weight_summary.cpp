// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cli/weight_summary.h"

#include <algorithm>
#include <charconv>
#include <string>

namespace granary {
namespace {

struct BlockName {
    uint64_t layer = 0;
    std::string_view rest;  // "attn_k.weight"
};

// "blk.12.attn_k.weight", or nothing.
std::optional<BlockName> parse_block_name(std::string_view name) {
    if (!name.starts_with("blk.")) return std::nullopt;
    name.remove_prefix(4);
    BlockName block;
    const auto [end, failed] = std::from_chars(name.begin(), name.end(), block.layer);
    if (failed != std::errc() || end == name.end() || *end != '.') return std::nullopt;
    block.rest = name.substr(static_cast<size_t>(end - name.begin()) + 1);
    return block;
}

bool is_expert_weight(std::string_view rest) {
    return rest == "ffn_gate_exps.weight" || rest == "ffn_up_exps.weight" ||
           rest == "ffn_down_exps.weight" || rest == "ffn_gate_up_exps.weight";
}

// Blocks that run for every token; blocks behind them predict further tokens and keep no K/V here.
uint64_t trunk_layers(const gguf::File& file) {
    const auto architecture = file.get_string("general.architecture");
    if (!architecture) return UINT64_MAX;
    const std::string prefix(*architecture);
    const auto blocks = file.get_unsigned(prefix + ".block_count");
    const auto extra = file.find_unsigned(prefix + ".nextn_predict_layers");
    if (!blocks) return UINT64_MAX;
    const uint64_t behind = extra ? extra->value_or(0) : 0;
    return *blocks > behind ? *blocks - behind : *blocks;
}

}  // namespace

WeightSummary summarise_weights(const gguf::File& file) {
    WeightSummary sum;
    std::map<uint64_t, uint64_t> expert_bytes;  // by layer
    const uint64_t trunk = trunk_layers(file);
    const bool tied = file.tensor("output.weight") == nullptr;
    uint64_t kv_values = 0;
    for (const gguf::Tensor& tensor : file.tensors()) {
        WeightSummary::OfType& type = sum.types[gpu::weight_type_info(tensor.type).name];
        ++type.tensors;
        type.bytes += tensor.bytes;
        sum.tensor_bytes += tensor.bytes;
        const auto block = parse_block_name(tensor.name);
        if (block && is_expert_weight(block->rest)) {
            const uint64_t experts = tensor.shape[2];
            sum.expert_bytes += tensor.bytes;
            sum.experts = std::max(sum.experts, experts);
            expert_bytes[block->layer] += tensor.bytes / experts;
        } else if (tensor.name == "token_embd.weight" && !tied) {
            sum.host_bytes += tensor.bytes;
        } else {
            sum.fixed_bytes += tensor.bytes;
        }
        if (block && block->layer < trunk &&
            (block->rest == "attn_k.weight" || block->rest == "attn_v.weight")) {
            kv_values += tensor.rows();
        }
    }
    sum.expert_layers = expert_bytes.size();
    if (!expert_bytes.empty()) {
        const auto [least, most] = std::minmax_element(
            expert_bytes.begin(), expert_bytes.end(),
            [](const auto& left, const auto& right) { return left.second < right.second; });
        sum.expert_bytes_least = least->second;
        sum.expert_bytes_most = most->second;
    }
    if (kv_values > 0) sum.kv_bytes_per_token_f16 = 2 * kv_values;
    if (const auto architecture = file.get_string("general.architecture")) {
        sum.windowed = file.find(std::string(*architecture) + ".attention.sliding_window");
    }
    return sum;
}

}  // namespace granary

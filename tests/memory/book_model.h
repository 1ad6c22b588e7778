// SPDX-License-Identifier: GPL-3.0-or-later
// A model of any shape whose layers need no file: what the memory manager knows of one.
#pragma once

#include <random>
#include <vector>

#include "engine/memory/layout.h"
#include "engine/model/model.h"

namespace granary::test {

struct BookModelShape {
    uint32_t experts = 8, used = 2, hidden = 32, ffn = 16;
    uint32_t kv_heads = 1, head_dim = 8;
    uint64_t fixed_bytes = 5000, state_bytes = 0;
    // Bytes of gate, up and down of one expert, layer by layer.
    std::vector<std::array<uint64_t, 3>> layers;
};

// Experts of `content` bytes, at random addresses of it: `content` must outlive the model and be
// as long as the largest layer's experts. Empty: addresses that nobody may read.
inline Model book_model(const BookModelShape& shape, std::vector<std::byte>& content) {
    Model model;
    ModelFacts& facts = model.facts;
    facts.name = facts.family = "book";
    facts.layers = static_cast<uint32_t>(shape.layers.size());
    facts.trained_context = 1 << 20;
    facts.vocab = 64;
    facts.hidden = shape.hidden;
    facts.experts = shape.experts;
    facts.experts_used = shape.used;
    facts.expert_ffn = shape.ffn;
    facts.attention.heads = 2 * shape.kv_heads;
    facts.attention.kv_heads = shape.kv_heads;
    facts.attention.head_dim = facts.rope_dims = shape.head_dim;
    facts.fixed_bytes = shape.fixed_bytes;
    facts.state_bytes = shape.state_bytes;
    model.attention = facts.attention;
    uint64_t total = 0;
    for (const auto& [gate, up, down] : shape.layers) {
        Layer layer;
        MoeWeights& moe = layer.moe;
        moe.gate_bytes = gate, moe.up_bytes = up, moe.down_bytes = down;
        moe.up_offset = round_up(gate, kPartAlignment);
        moe.down_offset = round_up(moe.up_offset + up, kPartAlignment);
        facts.expert_bytes.push_back(round_up(moe.down_offset + down, kSlotAlignment));
        facts.row_bytes += facts.expert_bytes.back();
        total += shape.experts * (gate + up + down);
        model.layers.push_back(std::move(layer));
    }
    if (content.empty()) total = 0;
    content.resize(total);
    std::mt19937 random(1);
    for (std::byte& byte : content) byte = static_cast<std::byte>(random());
    const std::byte* at = content.data();
    for (Layer& layer : model.layers)
        for (uint32_t e = 0; e < shape.experts; ++e) {
            MoeWeights& moe = layer.moe;
            moe.home.push_back({at, at + moe.gate_bytes, at + moe.gate_bytes + moe.up_bytes});
            if (total) at += moe.gate_bytes + moe.up_bytes + moe.down_bytes;
        }
    return model;
}

}  // namespace granary::test

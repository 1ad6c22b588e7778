// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/run/conversation.h"

#include <algorithm>

#include "engine/run/engine_impl.h"

namespace granary {
namespace {

size_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b) {
    return static_cast<size_t>(
        std::mismatch(a.begin(), a.begin() + std::min(a.size(), b.size()), b.begin()).first -
        a.begin());
}

}  // namespace

uint32_t Engine::Impl::kept(const Conversation& conversation,
                            std::span<const TokenId> tokens) const {
    const size_t common = common_prefix(conversation.tokens, tokens);
    // The last token is always read: its logits begin the answer.
    const size_t most = std::min(common, tokens.size() - 1);
    if (core->model.facts.state_bytes && most < conversation.tokens.size()) return 0;
    return static_cast<uint32_t>(most);
}

Result<void> Engine::Impl::enter(Conversation& conversation, uint32_t cells) {
    if (core->model.facts.state_bytes == 0) return {};
    MemoryManager& memory = *core->memory;
    if (running && running != &conversation)
        if (auto r = memory.save_state(running->state); !r) return r;
    const bool here = running == &conversation;
    running = nullptr;
    if (cells == 0) {
        conversation.tokens.clear();  // also when it fails: there is no state after them any more
        if (auto r = memory.clear_state(); !r) return r;
    } else if (!here) {
        if (auto r = memory.restore_state(conversation.state); !r) return r;
    }
    running = &conversation;
    return {};
}

void Engine::Impl::forget(Conversation& conversation) {
    conversation.tokens.clear();
    conversation.state = {};
    leave(conversation);
}

Result<MemoryManager::Growth> Engine::Impl::step(const RunContext& run, Conversation& conversation,
                                                 TokenId token) {
    const auto cell = static_cast<uint32_t>(conversation.tokens.size());
    auto growth = grow(conversation, cell + 1);
    if (!growth) return growth;
    auto decoded =
        decode_step(run, run.memory.kv_base(conversation.kv), cell, {&token, 1}, ++heat_tick);
    if (!decoded) {
        if (run.model.facts.state_bytes) forget(conversation);
        return tl::unexpected(decoded.error());
    }
    conversation.tokens.push_back(token);
    return growth;
}

}  // namespace granary

// SPDX-License-Identifier: GPL-3.0-or-later
// What the engine keeps of a conversation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/memory/manager.h"
#include "granary/tokenizer.h"

namespace granary {

// One conversation: the tokens whose K and V lie in its cells.
struct Conversation {
    KvId kv = 0;
    std::vector<TokenId> tokens;
    // After these tokens, of delta nets; saved while another conversation runs and at the
    // beginning of each chunk.
    std::vector<std::byte> state;
    uint64_t last_use = 0;
};

}  // namespace granary

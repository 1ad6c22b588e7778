// SPDX-License-Identifier: GPL-3.0-or-later
// A conversation: what was said, the cells that hold it, and states to go back to.
//
// Attention looks at cells, and any number of them can be left out again. What delta nets remember
// cannot go back: it lies in the pool for the conversation that runs (Engine::Impl::running), and
// in checkpoints. For a model with delta nets this always holds: a conversation that does not run
// has a checkpoint at `cells`, or no cells.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/memory/manager.h"
#include "engine/run/checkpoint.h"
#include "engine/run/history.h"

namespace granary {

struct Conversation {
    KvId kv = 0;
    History history;                      // also of what is in no cell any more
    uint32_t cells = 0;                   // of the history's tokens, that need not be read again
    std::vector<Checkpoint> checkpoints;  // by cells, the last one at most at `cells`
    uint64_t last_use = 0;
    bool passing = false;  // of a measurement: nobody goes back in it

    std::vector<uint32_t> checkpoint_cells() const {
        std::vector<uint32_t> cells;
        for (const Checkpoint& checkpoint : checkpoints) cells.push_back(checkpoint.cells);
        return cells;
    }
    const Checkpoint* checkpoint_at(uint32_t at) const {
        for (const Checkpoint& checkpoint : checkpoints)
            if (checkpoint.cells == at) return &checkpoint;
        return nullptr;
    }
};

// Where a request can begin to read: behind the first `cells` of its tokens.
struct Resume {
    uint32_t cells = 0;
    uint32_t again = 0;   // tokens that are in cells and must be read again all the same
    bool logits = false;  // nothing must be read: those of the last token are kept
};

}  // namespace granary

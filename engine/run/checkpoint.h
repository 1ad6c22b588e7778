// SPDX-License-Identifier: GPL-3.0-or-later
// Copies of what delta nets remember, in host memory: a state cannot go back by itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

namespace granary {

// Bytes of a state. In pages of 2 MiB where the system has them: the first copy to 63 MiB of small
// ones takes five times as long.
struct FreeBytes {
    void operator()(std::byte* bytes) const;
};
using StateBytes = std::unique_ptr<std::byte[], FreeBytes>;
StateBytes allocate_state(uint64_t bytes);  // null: no memory

struct Checkpoint {
    uint32_t cells = 0;         // the state after so many tokens
    StateBytes state;           // as it lies in the pool
    std::vector<float> logits;  // of the last token, [vocab]; or empty
};

// What a checkpoint is worth that lies `gap` cells behind the one before it and `distance` before
// its conversation's end: without it, a return to it reads `gap` cells more, and the nearer the
// end, the more often somebody returns.
double checkpoint_worth(uint64_t gap, uint64_t distance);

// The one that is worth least of checkpoints at `cells`, the first ones of a conversation that has
// `end`. Dropped again and again, it leaves distances that double.
struct LeastWorth {
    size_t index = 0;
    double worth = std::numeric_limits<double>::infinity();  // of none
};
LeastWorth least_worth(std::span<const uint32_t> cells, uint64_t end);

// Where a prompt [from, total) is worth a checkpoint besides its end: about 64, 128, 256 ..
// before it, at multiples of gpu::kDeltaCells, descending.
std::vector<uint32_t> checkpoint_cells(uint32_t from, uint32_t total);

}  // namespace granary

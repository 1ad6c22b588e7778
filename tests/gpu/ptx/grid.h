// SPDX-License-Identifier: GPL-3.0-or-later
// Runs a kernel: block after block, warps of a block in turns.
#pragma once

#include "tests/gpu/ptx/warp.h"

namespace granary::test::ptx {

struct Launch {
    const Function* function = nullptr;
    std::array<uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1};
    uint32_t shared_bytes = 0;          // beside the kernel's own
    bool early = false;                 // it may begin while the kernels ahead run
    std::vector<std::byte> parameters;  // as the kernel lays them out
};

// Keeps the room that blocks need for those that come after.
class Runner {
  public:
    Runner();
    ~Runner();
    // Errors: Fault, with kernel, block and instruction.
    void run(const Launch& launch, const FindMemory& memory);
    // Something else was done meanwhile, which waited for all kernels.
    void other_work() { early_.other_work(); }

  private:
    class Place;
    void run_block();
    std::unique_ptr<Place> place_;
    EarlyLaunches early_;
};

// Lets the warps go that wait at a barrier, once all have come.
void meet(Block& block, Barrier& barrier);

}  // namespace granary::test::ptx

// SPDX-License-Identifier: GPL-3.0-or-later
// What differs from one card without a GPU to another.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "tests/gpu/card/card.h"

namespace granary::test::card {

struct Facts {
    const char* name;
    size_t bytes;
    int capability;    // 80: 8.0
    int shared_bytes;  // that a block may have
};
const Facts& facts();

struct Kernel;

// Null: it has none of that name.
const Kernel* find_kernel(const std::string& name);
// The architecture that it was written for: 80.
int target_of(const Kernel& kernel);
// The work of a launch, which may begin while the kernels ahead run where `early`. `arguments`
// point at each argument, which are taken now.
Work launch(const Kernel& kernel, const std::array<uint32_t, 3>& grid,
            const std::array<uint32_t, 3>& block, uint32_t shared_bytes, bool early,
            void** arguments);
// Called by the thread that works, for all work but launches.
void other_work();

}  // namespace granary::test::card

// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstdint>

namespace granary::gpu::cuda {

// The driver's description of an array in device memory for the tensor copy engine.
struct alignas(64) TensorMap {
    uint64_t opaque[16];
};

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstddef>
#include <span>

#include "gpu/cuda/device.h"

namespace granary::gpu::cuda {

// What a card can do at most, by the kernels of limits.cu.
struct CardLimits {
    double mma = 0, wgmma = 0;  // f16 products with f32 sums, operations a second; 0: has none
    double int8 = 0;            // products of 8-bit integers by mma.sync
    double copy = 0;            // of device memory to itself, bytes read and written a second
    double products() const { return mma > wgmma ? mma : wgmma; }
};
// The quickest of a few runs each, about 0.1 s; the copy is from one half of `scratch` to the
// other, which should be larger than the card's cache. Errors: the driver's.
Result<CardLimits> measure_limits(GpuMemory& device, std::span<std::byte> scratch);

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// What the memory layer costs on this machine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gpu/cuda/device.h"

namespace granary::gpu::check {

struct Timing {
    std::string name;  // "map and set access, one by one"
    double value = 0;
    std::string unit;  // "us per granule", "ms per GiB", "GB/s"
    std::string note;  // why there is no value; else empty
};

struct TimingOptions {
    size_t granules = 512;
    size_t bytes = size_t{1} << 30;  // of what is page-locked and copied
    std::string folder;              // for a file of that size, gone again afterwards
};

// Errors: a device that does not open, or that has too little memory. A cost that cannot be
// measured, such as locking a file mapping where the system does not allow it, is a note.
Result<std::vector<Timing>> measure(const std::shared_ptr<cuda::Driver>& driver,
                                    const cuda::Options& options, const TimingOptions& limits);

}  // namespace granary::gpu::check

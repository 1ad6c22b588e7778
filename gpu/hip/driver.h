// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "gpu/cuda/driver.h"

namespace granary::gpu::hip {

// AMD's HIP runtime of this machine, ROCm 6 or newer: before it, HIP had no memory that can be
// mapped anywhere. Every piece of such memory costs the process a file descriptor, so the soft
// limit of open files is raised to the hard one. Errors: as Driver::open.
Result<std::shared_ptr<cuda::Driver>> open_driver();

}  // namespace granary::gpu::hip

// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/host/iq_grids.h"

namespace granary::gpu::host {

#define GRANARY_GRID const
#include "gpu/iq_grid_values.h"

}  // namespace granary::gpu::host

// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <memory>

#include "engine/model/tensors.h"
#include "granary/planner.h"
#include "granary/rope.h"

namespace granary {

// <family>.rope.scaling.* of a file whose context_length is `trained`. Faults stay with `read`.
RopeScaling read_rope_scaling(TensorReader& read, uint32_t trained);

// What a model of these facts does under `settings` with a context of `max_context` tokens. Where
// neither file nor settings give a factor, it is the whole number that the context needs. Errors:
// invalid_argument for a factor that nothing uses, unsupported where YaRN is not defined.
Result<RopeScaling> resolve_rope(const ModelFacts& model, const Settings& settings,
                                 uint32_t max_context);

// The table of `dims` rotating values of a head. YaRN's ramp runs over the numbers of pairs between
// those two that turn beta_fast and beta_slow times, rounded outward, as in its authors' code.
std::shared_ptr<const gpu::RopeTable> rope_table(uint32_t dims, double base,
                                                 const RopeScaling& scaling);

}  // namespace granary

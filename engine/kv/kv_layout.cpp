// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kv/kv_layout.h"

namespace granary {

KvLayout kv_layout(const ModelFacts& model, gpu::KvFormat format) {
    KvLayout layout;
    layout.format = format;
    layout.row_bytes = uint64_t{model.attention.kv_heads} * model.attention.head_dim *
                       (format == gpu::KvFormat::f16 ? 2 : 4);
    layout.part_bytes = layout.row_bytes * gpu::kStepCells;
    layout.step_bytes = layout.part_bytes * 2 * (model.layers - model.delta_layers);
    return layout;
}

}  // namespace granary

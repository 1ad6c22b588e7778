// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kv/kv_layout.h"

namespace granary {

KvLayout kv_layout(const ModelFacts& model, gpu::KvFormat format) {
    KvLayout layout;
    layout.parts = gpu::kv_parts(format, model.attention.kv_heads, model.attention.head_dim);
    layout.step_bytes = layout.parts.bytes * (model.layers - model.delta_layers);
    return layout;
}

gpu::KvFormat kv_format_of(const ModelFacts&, const DeviceFacts& device, const Settings& settings,
                           uint32_t) {
    return settings.kv.value_or(device.auto_kv.value_or(gpu::KvFormat::f16));
}

}  // namespace granary

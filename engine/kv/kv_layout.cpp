// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kv/kv_layout.h"

namespace granary {

KvLayout kv_layout(const ModelFacts& model, gpu::KvFormat format) {
    KvLayout layout;
    layout.parts = gpu::kv_parts(format, model.attention.kv_heads, model.attention.head_dim);
    layout.step_bytes = layout.parts.bytes * (model.layers - model.delta_layers);
    return layout;
}

gpu::KvFormat kv_format_of(const ModelFacts& model, const DeviceFacts& device,
                           const Settings& settings, uint32_t max_context) {
    if (settings.kv) return *settings.kv;
    if (device.auto_kv) return *device.auto_kv;
    for (const gpu::KvFormat format : {gpu::KvFormat::f16, gpu::KvFormat::int8})
        if (steps_of(max_context) * kv_layout(model, format).step_bytes <= kCheapKvBytes)
            return format;
    return gpu::KvFormat::k8v4;
}

uint64_t kv_cells_within(const ModelFacts& model, const DeviceFacts& device,
                         const Settings& settings, uint32_t max_context, uint64_t bytes) {
    // A shorter context may stand for a format that takes more: until both agree.
    for (uint64_t context = max_context; context > 0;) {
        const uint64_t step_bytes =
            kv_step_bytes(model, device, settings, static_cast<uint32_t>(context));
        const uint64_t cells = step_bytes ? bytes / step_bytes * gpu::kStepCells : 0;
        if (cells >= context) return context;
        context = cells;
    }
    return 0;
}

}  // namespace granary

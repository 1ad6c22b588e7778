// SPDX-License-Identifier: GPL-3.0-or-later
// Where the cells of a conversation lie in its K/V range.
#pragma once

#include <cstdint>

#include "gpu/kernels.h"
#include "granary/planner.h"

namespace granary {

// One K/V step of kStepCells cells: attention layer by attention layer.
struct KvLayout {
    gpu::KvParts parts;  // of one layer
    uint64_t step_bytes = 0;

    // `layer` counts the layers with attention.
    gpu::KvView view(std::byte* base, uint32_t layer) const {
        return {base + layer * parts.bytes, step_bytes, parts.k, parts.v};
    }
};
KvLayout kv_layout(const ModelFacts& model, gpu::KvFormat format);

// The format that the setting `kv` stands for, and the bytes of a step in it. max_context is the
// resolved one.
gpu::KvFormat kv_format_of(const ModelFacts& model, const DeviceFacts& device,
                           const Settings& settings, uint32_t max_context);
inline uint64_t kv_step_bytes(const ModelFacts& model, const DeviceFacts& device,
                              const Settings& settings, uint32_t max_context) {
    return kv_layout(model, kv_format_of(model, device, settings, max_context)).step_bytes;
}

inline uint64_t steps_of(uint64_t cells) {
    return (cells + gpu::kStepCells - 1) / gpu::kStepCells;
}

}  // namespace granary

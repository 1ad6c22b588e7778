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

    // `layer` counts the layers with attention. Prompt: `base` is the range's. Decode: `place`, in
    // device memory, says where the range begins.
    gpu::KvView view(std::byte* base, uint32_t layer) const {
        return {base + layer * parts.bytes, step_bytes, parts.k, parts.v, nullptr, 0};
    }
    gpu::KvView view(const gpu::DecodePlace* place, uint32_t layer) const {
        return {nullptr, step_bytes, parts.k, parts.v, place, layer * parts.bytes};
    }
};
KvLayout kv_layout(const ModelFacts& model, gpu::KvFormat format);

// `kv` auto: the most exact format in which the cells of max-context take at most this much, a
// sixteenth of a 16 GiB card; k8v4 where none does. Below it a smaller format would win experts
// less than 1 GiB of room; above it K/V is what decode reads most, and k8v4 keeps 3.5 times the
// cells of f16 in the same room. q4 is never chosen unasked: 4-bit keys cost answers. It depends on
// the model and max-context alone, so that a budget never changes tokens. A family whose keys do
// not bear 8 bits (gpt-oss) must be given its own answer here when it is added.
inline constexpr uint64_t kCheapKvBytes = 1ull << 30;

// The format that the setting `kv` stands for, and the bytes of a step in it. max_context is the
// resolved one.
gpu::KvFormat kv_format_of(const ModelFacts& model, const DeviceFacts& device,
                           const Settings& settings, uint32_t max_context);
inline uint64_t kv_step_bytes(const ModelFacts& model, const DeviceFacts& device,
                              const Settings& settings, uint32_t max_context) {
    return kv_layout(model, kv_format_of(model, device, settings, max_context)).step_bytes;
}

// The longest context, whole steps or max_context itself, whose cells take at most `bytes` in the
// format that `kv` stands for there. 0: not even one step does, or no layer has cells.
uint64_t kv_cells_within(const ModelFacts& model, const DeviceFacts& device,
                         const Settings& settings, uint32_t max_context, uint64_t bytes);

inline uint64_t steps_of(uint64_t cells) {
    return (cells + gpu::kStepCells - 1) / gpu::kStepCells;
}

}  // namespace granary

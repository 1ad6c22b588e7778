// SPDX-License-Identifier: GPL-3.0-or-later
// A model as the run loops see it: shapes and weights by layer. A family file fills it from a
// GGUF file; nothing here allocates device memory.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/gguf/file.h"
#include "gpu/kernels.h"
#include "granary/planner.h"

namespace granary {

struct AttentionWeights {
    const float* norm = nullptr;    // [hidden]
    gpu::Weight q, k, v, out;       // [heads * head_dim, hidden] ... [hidden, heads * head_dim]
                                    // q of facts.gated_queries: [heads * 2 * head_dim, hidden]
    const float* q_norm = nullptr;  // [head_dim] or null
    const float* k_norm = nullptr;
};

struct DeltaWeights {
    const float* norm = nullptr;       // [hidden]
    gpu::Weight qkv;                   // [channels, hidden]
    gpu::Weight gate, out;             // [width, hidden], [hidden, width]
    gpu::Weight alpha, beta;           // [value_heads, hidden]
    const float* kernel = nullptr;     // [channels, taps]
    const float* dt = nullptr;         // [value_heads]
    const float* a = nullptr;          // [value_heads]
    const float* head_norm = nullptr;  // [head_dim]
};

// An expert that every token goes to, as much as its gate says.
struct SharedExpert {
    const float* gate_in = nullptr;  // [hidden]
    gpu::Weight gate, up, down;      // [ffn, hidden] twice, [hidden, ffn]
    gpu::ExpertShape shape() const {
        return {gate.cols, gate.rows, 1, 1, gate.type, up.type, down.type};
    }
};

struct MoeWeights {
    const float* norm = nullptr;  // [hidden]
    gpu::Weight router;           // [experts, hidden]
    gpu::ExpertShape shape;
    gpu::RouterShape routing;
    // [experts] where each expert lies in host memory: in the file's mapping, or a locked copy.
    std::vector<gpu::ExpertEntry> home;
    bool home_readable = true;  // by the device
    uint64_t gate_bytes = 0, up_bytes = 0, down_bytes = 0;  // of one expert
    // Where up and down begin in a slot, gate being at 0: aligned, since blocks of odd sizes may
    // stand before f32 weights.
    uint64_t up_offset = 0, down_offset = 0;
    std::optional<SharedExpert> shared;
};

struct Layer {
    std::variant<AttentionWeights, DeltaWeights> mixer;
    uint32_t number = 0;  // among the layers with a mixer of its kind
    MoeWeights moe;
};

struct Model {
    std::shared_ptr<const gguf::File> file;  // keeps the mapping alive
    ModelFacts facts;
    gpu::AttentionShape attention;
    float norm_eps = 1e-6f;
    gpu::Weight embedding;               // [vocab, hidden], stays in host memory
    const float* output_norm = nullptr;  // [hidden]
    gpu::Weight output;                  // [vocab, hidden]
    std::vector<Layer> layers;

    // Every pointer above that belongs on the device at all times, with the bytes behind it. The
    // card face copies them and moves the pointers.
    struct Fixed {
        const std::byte** pointer;
        uint64_t bytes;
    };
    std::vector<Fixed> fixed();
};

// Errors: `unsupported` with the list of families; `invalid_file` with tensor, shape found and
// shape expected.
Result<Model> load_model(std::shared_ptr<const gguf::File> file);

// One family each.
Result<Model> load_qwen3moe(std::shared_ptr<const gguf::File> file);
Result<Model> load_qwen35moe(std::shared_ptr<const gguf::File> file);

}  // namespace granary

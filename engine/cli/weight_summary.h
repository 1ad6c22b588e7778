// SPDX-License-Identifier: GPL-3.0-or-later
// What a model file's weights cost, told from the tensors alone, so that it works for families
// that this program cannot run too.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

#include "engine/gguf/file.h"

namespace granary {

struct WeightSummary {
    struct OfType {
        uint64_t tensors = 0;
        uint64_t bytes = 0;
    };
    std::map<std::string_view, OfType> types;  // by type name
    uint64_t tensor_bytes = 0;                 // fixed + host + experts
    uint64_t fixed_bytes = 0;                  // what is always on the device
    uint64_t host_bytes = 0;                   // token embedding, unless it is the output too
    uint64_t expert_bytes = 0;                 // routed experts' gate, up and down weights

    uint64_t expert_layers = 0;
    uint64_t experts = 0;  // of the layer that has most
    // One expert's gate, up and down weights; mixed quantisation makes layers differ.
    uint64_t expert_bytes_least = 0;
    uint64_t expert_bytes_most = 0;

    // K and V of one token in all layers that keep them, two bytes a value. Nothing where the
    // file has no plain K and V projections (vocabulary-only files, latent attention).
    std::optional<uint64_t> kv_bytes_per_token_f16;
    bool windowed = false;  // some layers keep only the last cells, so the figure is a bound
};

WeightSummary summarise_weights(const gguf::File& file);

}  // namespace granary

// SPDX-License-Identifier: GPL-3.0-or-later
// What the Qwen families have in common.
#pragma once

#include "engine/model/model.h"
#include "engine/model/tensors.h"

namespace granary::qwen {

// Fills sizes, attention shape and norm_eps of `model` from the metadata of `family`.
Result<void> read_facts(TensorReader& read, const gguf::File& file, const char* family,
                        Model& model);

// Embedding, output norm and output matrix (the embedding again where the file has none).
void read_ends(TensorReader& read, Model& model);

// Router and routed experts of the block `prefix`, fused (ffn_gate_up_exps: gate rows first) or
// not; counts their bytes in model.facts. The norm is the caller's.
void read_experts(TensorReader& read, const std::string& prefix, Model& model, MoeWeights& moe);

// Sums over the finished layers: bytes of fixed weights, of host memory, of K/V.
void sum_up(Model& model);

}  // namespace granary::qwen

// SPDX-License-Identifier: GPL-3.0-or-later
// What a forward pass works with: the model, the device, and buffers at the offsets of a
// PassLayout. prompt.cpp and decode.cpp are the two loops over the layers.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "engine/memory/manager.h"
#include "engine/model/model.h"
#include "engine/run/checkpoint.h"
#include "engine/run/cpu_worker.h"
#include "engine/run/phases.h"
#include "gpu/device.h"
#include "gpu/kernels.h"

namespace granary {

struct PassBuffers {
    int32_t* tokens = nullptr;    // [rows]
    float* x = nullptr;           // [rows, hidden] the residual stream
    gpu::Activations norm;        // [rows, hidden]
    float* q = nullptr;           // [rows, heads, head_dim]
    float* k = nullptr;           // [rows, kv_heads, head_dim]
    float* v = nullptr;           // [rows, kv_heads, head_dim]
    gpu::Activations attention;   // [rows, heads * head_dim]
    float* pairs = nullptr;       // [rows, heads, 2, head_dim] queries with their gates
    float* channels = nullptr;    // [rows, channels] of a delta net; later [rows, width] its output
    float* convolved = nullptr;   // [rows, channels]
    float* alpha = nullptr;       // [rows, value_heads]
    float* beta = nullptr;        // [rows, value_heads]
    float* delta_gate = nullptr;  // [rows, width]
    gpu::Activations delta;       // [rows, width]
    gpu::Routes routes;           // [rows, used]
    gpu::Activations hidden;      // [rows * used, ffn]
    gpu::Activations shared;      // [rows, shared_ffn], in the place of hidden
    void* expert_out = nullptr;   // [rows * used, hidden], see Kernels::expert_out_bytes
};

// Decode steps of one token, where the device records work.
struct RecordedSteps {
    std::optional<gpu::RecordingId> any;       // whatever is missing
    std::optional<gpu::RecordingId> complete;  // where every expert has its slot, if they ever have
};

struct RunContext {
    gpu::Device& device;
    const Model& model;
    MemoryManager& memory;
    const Plan& plan;
    WorkspaceLayout workspace;
    gpu::Arithmetic arithmetic = gpu::Arithmetic::fast;
    RecordedSteps recorded{};
    CpuWorker* cpu = nullptr;      // of recorded steps; null: the device computes every expert
    PhaseClock* phases = nullptr;  // of prompts, for benches
    // For calibration: experts without a slot are not copied; others stand in for them.
    bool stand_ins = false;

    gpu::Kernels& kernels() const { return device.kernels(); }
    // Tokens of a decode step at most: experts are brought for steps of one.
    uint32_t step_rows() const { return cpu && cpu->brings_some() ? 1 : kDecodeRows; }
    void phase(Phase phase) const {
        if (phases) phases->enter(phase);
    }
    // Where a decode step stands, in device memory.
    gpu::DecodePlace* place() const {
        return reinterpret_cast<gpu::DecodePlace*>(memory.workspace() + workspace.place);
    }
    // Buffers for `rows` rows at `base`, laid out for at least as many.
    PassBuffers buffers(std::byte* base, const PassLayout& layout, uint32_t rows) const;
    // Of the last output_logits, on the host.
    const float* logits() const {  // [kDecodeRows, vocab]
        return reinterpret_cast<const float*>(memory.results() + kDecodeRows * sizeof(int32_t));
    }
    const int32_t* best() const {  // [kDecodeRows]
        return reinterpret_cast<const int32_t*>(memory.results());
    }
    // As if output_logits had given these for one row: [vocab], kept from before.
    void set_logits(std::span<const float> logits) const;
};

// Final norm and output matrix for up to kDecodeRows rows of x; brings logits() and best() to the
// host and waits for them.
Result<void> output_logits(const RunContext& run, const float* x, uint32_t rows);
// Its two halves: the work, and what brings its results to the host and waits for them.
void queue_output(const RunContext& run, uint32_t rows);  // of the norm in the workspace
Result<void> bring_output(const RunContext& run, uint32_t rows);

// Where and how the rows of a pass meet what came before them.
struct MixPlace {
    const gpu::DecodePlace* decode = nullptr;  // in device memory; null: a prompt
    std::byte* kv = nullptr;                   // of a prompt
    uint32_t first_cell = 0;                   // of a prompt
    std::span<const Checkpoint> checkpoints{};
};
// Weights of the norm in front of a layer; of the output after the last.
const float* mixer_norm(const Model& model, uint32_t layer);
// The first half of a layer: x += attention or delta net of norm, which is that of x.
void mix(const RunContext& run, uint32_t layer, const PassBuffers& at, const MixPlace& place);
// The shared expert of a layer that has one.
gpu::SharedExpert shared_expert(const RunContext& run, uint32_t layer);
// Its work, from norm to expert_out; its routes take the place of the others.
void run_shared_expert(const RunContext& run, uint32_t layer, const PassBuffers& at);

// Called between layers; false stops the pass.
using LayerCallback = std::function<bool(uint32_t layers_done)>;

// How many of a prompt's last tokens warm the expert cache: all would flush the working set.
inline constexpr uint32_t kWarmingTokens = 512;

// Where a chunk stands in its prompt.
struct ChunkPlace {
    uint32_t first_cell = 0;
    uint32_t first_warming = 0;  // rows from here on count as heat
    uint32_t tick = 0;           // of that heat
    // Of states on the way, in order; filled, without logits, when the chunk is read.
    std::span<const Checkpoint> checkpoints;
};

struct ChunkDone {
    PassBuffers at;               // x of every row, in the loan's buffers
    uint64_t bytes_streamed = 0;  // of experts; those that the device itself gathers do not count
};
// Reads a chunk: tokens at cells place.first_cell.. of `kv`, whose steps are mapped. Errors:
// cancelled (nothing of the chunk counts) where the callback says false or `wanted`, which is asked
// inside layers too; device.
Result<ChunkDone> read_chunk(const RunContext& run, const MemoryManager::Loan& loan, std::byte* kv,
                             const ChunkPlace& place, std::span<const TokenId> tokens,
                             const LayerCallback& callback, const std::function<bool()>& wanted);

// One decode step of 1 to kDecodeRows tokens at cells first_cell..; ends in output_logits.
Result<void> decode_step(const RunContext& run, std::byte* kv, uint32_t first_cell,
                         std::span<const TokenId> tokens, uint32_t tick);

// Records a decode step of `rows` tokens, with every expert in its slot or not; a load point.
Result<gpu::RecordingId> record_step(const RunContext& run, uint32_t rows, bool complete);

}  // namespace granary

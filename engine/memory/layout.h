// SPDX-License-Identifier: GPL-3.0-or-later
// Where things lie inside workspace and loan: pure arithmetic, shared by the planner
// and by the engine that executes its plans.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu/kernels.h"
#include "granary/planner.h"

namespace granary {

inline constexpr uint64_t kSlotAlignment = 256;  // of slots and of buffers
inline constexpr uint64_t kPartAlignment = 64;   // of an expert's matrices in its slot
inline constexpr uint32_t kDecodeRows = 8;       // tokens of one decode step at most
inline constexpr uint32_t kSmallestChunk = 64;   // tokens of the smallest loan
inline constexpr uint32_t kLargestChunk = 16384;

inline constexpr uint64_t kCpuWorkerBytes = 256;  // what CpuWorker keeps on a device

constexpr uint64_t round_up(uint64_t value, uint64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}
constexpr uint64_t divide_up(uint64_t value, uint64_t by) {
    return (value + by - 1) / by;
}

// What one delta net layer remembers: tail, then state, f32.
inline uint64_t delta_place_bytes(const gpu::DeltaShape& shape) {
    if (shape.taps == 0) return 0;
    return round_up((shape.tail_values() + shape.state_values()) * sizeof(float), kSlotAlignment);
}

// Offsets of the buffers that a forward pass of `rows` tokens works in.
struct PassLayout {
    uint32_t rows = 0;
    uint64_t tokens = 0;                       // int32 [rows]
    uint64_t x = 0;                            // f32 [rows, hidden]
    uint64_t norm_values = 0, norm_codes = 0;  // [rows, hidden]
    // Attention, delta net and experts never live at the same time: they share the bytes from
    // `shared` on.
    uint64_t q = 0, k = 0, v = 0;                        // f32 [rows, heads or kv_heads, head_dim]
    uint64_t attention_values = 0, attention_codes = 0;  // [rows, heads * head_dim]
    uint64_t pairs = 0;                                  // f32 [rows, heads, 2, head_dim]
    uint64_t channels = 0, convolved = 0;                // f32 [rows, channels] of a delta net
    uint64_t alpha = 0, beta = 0;                        // f32 [rows, value_heads]
    uint64_t delta_gate = 0;                             // f32 [rows, width]
    uint64_t delta_values = 0, delta_codes = 0;          // [rows, width]
    uint64_t route_expert = 0, route_weight = 0;         // [rows, used]
    uint64_t route_order = 0;                            // int32 [rows * used]
    uint64_t hidden_values = 0, hidden_codes = 0;        // [rows * used, ffn], [rows, shared_ffn]
    uint64_t expert_out = 0;                             // f32 [rows * used, hidden]
    uint64_t route_count = 0, route_first = 0;           // int32 [experts], [experts + 1]
    uint64_t bytes = 0;
};
PassLayout pass_layout(const ModelFacts& model, const DeviceFacts& device, uint32_t rows);

// The loan, laid from the end of the expert range downward: the ring first (fixed size), then
// the chunk's own buffers, so that a smaller chunk leaves the ring where it is. Offsets are from
// the loan's first byte, which lies `bytes` before the end of the range.
struct LoanLayout {
    PassLayout pass;                          // at offset 0
    uint64_t scratch = 0, scratch_bytes = 0;  // of prompt kernels
    uint64_t entries = 0;  // gpu::ExpertEntry [experts] of the layer at hand; card face only
    uint64_t ring = 0;     // ring_waves * ring_wave * ring_stride bytes; card face only
    uint64_t ring_stride = 0;
    uint32_t ring_wave = 1, ring_waves = 1;  // experts copied and computed together; waves
    uint64_t bytes = 0;
};
LoanLayout loan_layout(const ModelFacts& model, const DeviceFacts& device, uint32_t chunk);

// The chunks that a loan shrinks through: multiples of 64 up to 1,024, then eight to each doubling
// (1,152 .. 2,048, 2,304 ..). The largest below `chunk`; 0 below the smallest.
uint32_t smaller_chunk(uint32_t chunk);

// What is always there: decode's own pass buffers, logits, kernel scratch, expert tables.
struct WorkspaceLayout {
    PassLayout pass;       // at offset 0, kDecodeRows rows
    uint64_t other_x = 0;  // f32 [kDecodeRows, hidden], another place for the stream x
    uint64_t logits = 0;   // f32 [kDecodeRows, vocab]
    uint64_t best = 0;     // int32 [kDecodeRows]
    uint64_t place = 0;    // gpu::DecodePlace
    uint64_t scratch = 0, scratch_bytes = 0;
    uint64_t shared = 0;      // gpu::ExpertEntry [layers] of the shared experts
    uint64_t cpu_worker = 0;  // kCpuWorkerBytes; card face only
    uint64_t tables = 0;      // one expert table per layer
    uint64_t table_stride = 0;
    uint64_t bytes = 0;
};
WorkspaceLayout workspace_layout(const ModelFacts& model, const DeviceFacts& device,
                                 uint32_t max_context);

// One layer's expert table inside the workspace; see gpu::ExpertCacheView.
struct TableLayout {
    uint64_t entries = 0, slot_base = 0, counters = 0, slot_of = 0, expert_in = 0, heat = 0,
             last_use = 0, usable = 0, home = 0, picks = 0;
    uint64_t bytes = 0;
};
// Of as many slots as experts at most. used: experts that a token picks.
TableLayout table_layout(uint32_t experts, uint32_t used);

}  // namespace granary

// SPDX-License-Identifier: GPL-3.0-or-later
// What backends know of experts: the routes to them, where they lie, the cache of those that came
// last, and what of a step the processor computes. Shapes stand beside each pointer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/weight_type.h"

namespace granary::gpu {

// Which experts each row goes to. Route r = row * used + rank.
struct Routes {
    int32_t* expert = nullptr;  // [rows, used], best first; -1: the processor's, see CpuShare
    float* weight = nullptr;    // [rows, used]
    // Of prompts; a decode step's backend that does not read these three may leave them alone. None
    // is null.
    int32_t* count = nullptr;  // [experts] routes of each expert
    int32_t* first = nullptr;  // [experts + 1] where each expert's routes begin in `order`
    int32_t* order = nullptr;  // [rows * used] routes sorted by expert, then by route number
    uint32_t rows = 0;
    bool decode = false;  // as in Activations
};

// One expert's three matrices; gate null: not here.
struct ExpertEntry {
    const std::byte* gate = nullptr;  // [ffn, hidden]
    const std::byte* up = nullptr;    // [ffn, hidden]
    const std::byte* down = nullptr;  // [hidden, ffn]
};

struct ExpertShape {
    uint32_t hidden = 0, ffn = 0, experts = 0, used = 0;
    WeightType gate = WeightType::f32, up = WeightType::f32, down = WeightType::f32;
};

// An expert that every row goes to, with weight sigmoid(gate . x).
struct SharedExpert {
    ExpertShape shape;                   // of a table of one
    const ExpertEntry* entry = nullptr;  // device memory
    const float* gate = nullptr;         // [hidden]
};

// The device's table of one layer's expert cache. During decode the device owns it. A slot holds
// one expert: gate, up, down at 0, up_offset, down_offset.
struct ExpertCacheView {
    uint32_t experts = 0, slots = 0;
    int32_t* slot_of = nullptr;         // [experts] slot or -1
    int32_t* expert_in = nullptr;       // [slots] expert or -1
    uint8_t* usable = nullptr;          // [slots] 1: all its bytes lie in expert granules
    std::byte** slot_base = nullptr;    // [slots]
    float* heat = nullptr;              // [experts] decayed count of picks
    uint32_t* last_use = nullptr;       // [experts] tick of the last pick
    ExpertEntry* entries = nullptr;     // [experts] where to read each expert now
    const ExpertEntry* home = nullptr;  // [experts] page-locked host memory
    size_t gate_bytes = 0, up_bytes = 0, down_bytes = 0;  // of one expert
    size_t up_offset = 0, down_offset = 0;
    uint64_t* hits = nullptr;  // counters, one each
    uint64_t* misses = nullptr;
    uint64_t* bytes_copied = nullptr;
    // Decode: every entry is a slot, and stays it, so that nothing need be brought.
    bool complete = false;
    // [kDecodeRows * used] a step's picks, for backends that count those of a complete cache at its
    // end.
    int32_t* picks = nullptr;
};

// The processor's share of a decode step of one row. Of the experts that a layer finds missing the
// device leaves some, the coldest, to the processor, which computes them where they lie while the
// device does the rest of the layer. Where the device cannot read them at all, the processor brings
// those that are the device's. Both see the request: page-locked host memory, in which one
// layer asks at a time: with a number that is tick * kLayers + layer, written behind all else; the
// answer comes with the same, behind all else.
struct CpuRequest {
    static constexpr uint32_t kMost = 64;  // experts
    static constexpr uint64_t kLayers = 1 << 16, kNone = ~uint64_t{0};
    // The device's
    uint64_t asked = kNone;
    uint32_t count = 0;  // of experts to be computed
    int32_t expert[kMost] = {};
    float weight[kMost] = {};
    uint32_t stage_count = 0;  // of experts that are to be brought, the i-th to place i
    int32_t stage_expert[kMost] = {};
    // The processor's; `staged` comes first, where something was to be brought.
    alignas(128) uint64_t staged = kNone;
    uint64_t answered = kNone;
};
struct CpuShare {
    CpuRequest* request = nullptr;  // null: nothing is left to the processor
    float* x = nullptr;             // page-locked [hidden], of the request
    const float* sum = nullptr;     // page-locked [hidden], of the answer: weight * output, summed
    // Device memory: the request whose answer is not yet added, and the one whose experts are not
    // yet there; kNone.
    uint64_t* pending = nullptr;
    uint64_t* staging = nullptr;
    const uint8_t* of_misses = nullptr;  // device memory [CpuRequest::kMost + 1]: of so many misses
                                         // so many are the processor's
    // Page-locked: where the processor brings experts that lie in memory which the device cannot
    // read, `stage_stride` apart, laid out as a slot is. Null: it can.
    std::byte* stage = nullptr;
    size_t stage_stride = 0;
    uint32_t layer = 0;
    bool last = false;  // of the step's layers: asks always
};

}  // namespace granary::gpu

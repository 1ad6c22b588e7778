// SPDX-License-Identifier: GPL-3.0-or-later
// A device as a file: what the planner must know of it, so that plans can be made where it is not.
//
//   {"granary_device_profile": 3, "name": "...", "origin": "...", "estimate": true,
//    "device": "cuda", "total_bytes": .., "free_bytes": .., "granule_bytes": .., "threads": 0,
//    "buffers": {..}, "rates": {..}}
//
// Files come from strangers: every key must be there and no other, every number is range-checked.
#pragma once

#include <string>
#include <string_view>

#include "granary/planner.h"

namespace granary {

struct DeviceProfile {
    // What kernels need of memory, by rule instead of for one model.
    struct Buffers {
        // Codes of a row of activations: so many bytes for each group of so many values, the row
        // rounded up to 64.
        uint32_t code_group = 32, code_group_bytes = 96;
        // Scratch: for the device (on the host for each thread), and for each head and
        // gpu::kDecodeCut cells; both a constant and a part for each value of a head.
        uint64_t scratch_bytes = 0, scratch_bytes_per_value = 0;
        uint64_t cut_bytes = 0, cut_bytes_per_value = 0;
        // Scratch of prompt operations, of which one at a time uses it: the more of what attention
        // (for each K value of a cell; for each head of a row) and routing take (for each expert,
        // of the whole and of a row; for each group of values that experts read, of a row).
        uint64_t prompt_bytes_per_kv_value = 0, prompt_bytes_per_expert = 0;
        uint64_t row_bytes_per_head = 0, row_bytes_per_expert = 0;
        uint32_t row_bytes_per_code_group = 0;
        // See DeviceFacts.
        uint32_t expert_out_bytes = 4, hidden_value_bytes = 4, ring_wave = 1, ring_waves = 4;
        bool operator==(const Buffers&) const = default;
    };

    std::string name;    // "NVIDIA H200"
    std::string origin;  // where the figures come from, for a person
    bool estimate = true;
    std::string device = "host";  // backend: "host" has two faces, the others are cards
    uint64_t total_bytes = 0, free_bytes = 0;
    uint64_t granule_bytes = 0;  // 0 on the host: by the budget
    uint32_t threads = 0;        // of the host
    Buffers buffers;
    Rates rates;
    bool operator==(const DeviceProfile&) const = default;

    // Errors: `invalid_file` with key, value and what it must be.
    static Result<DeviceProfile> parse(std::string_view json);
    // Of a device that is here, with rates measured on it.
    static DeviceProfile of(gpu::Device& device, const Rates& rates);
    std::string json() const;

    DeviceFacts facts(const ModelFacts& model) const;
};

}  // namespace granary

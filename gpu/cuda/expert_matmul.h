// SPDX-License-Identifier: GPL-3.0-or-later
// Arguments of the kernels that multiply prompt tokens by the experts they were routed to, as host
// and device see them.
//
//   expert_tiles    routes sorted by expert -> a list of tiles, on the device
//   expert_gate_up  silu(gate x) * (up x) for every route, f16, in the order of the sorted routes
//   expert_down     down of that, to the route's own row
//
// All work on f16 rows whose columns are in the order of fragments.cuh ("ordered rows").
#pragma once

#include <cstdint>

#include "gpu/kernels.h"

namespace granary::gpu::cuda {

// Up to 128 routes of one expert: places first .. first + rows - 1 of the sorted routes. An
// expert's routes are cut into the fewest tiles, as equal as multiples of 16 allow.
struct ExpertTile {
    int32_t expert, first, rows, unused;
};
inline constexpr uint32_t kTileRows = 128;
inline constexpr uint32_t kMaxExperts = 512;
// Tiles that `routes` routes to `experts` experts can need at most.
constexpr uint32_t max_expert_tiles(uint32_t routes, uint32_t experts) {
    return routes / kTileRows + experts;
}

// Experts to run, in order of work.
struct ExpertList {
    uint32_t count;
    uint16_t expert[kMaxExperts];
};

struct ExpertMatmul {
    const ExpertTile* tiles;  // [*tile_count]
    const int32_t* tile_count;
    const ExpertEntry* entries;  // [experts]; matrices begin at multiples of 16 bytes
    const int32_t* order;        // [routes] sorted by expert
    uint32_t used;               // routes of a token; gate and up read row order[i] / used
    uint32_t cols;               // of the weights: a multiple of 256, at least 512
    uint32_t features;           // rows of gate and up, or of down: a multiple of 32
    const void* x;  // f16 ordered rows: [tokens, cols], or for down [routes, cols] as sorted
    void* out;      // gate and up: f16 ordered [routes, features] as sorted; down: f16
                    // [routes, features] at row order[i]
};

// How they are launched: threads of a block, blocks (each walks over tiles) a multiprocessor, bytes
// of dynamic shared memory.
struct ExpertLaunch {
    uint32_t threads, blocks, shared_q4_k, shared_q5_k, shared_q6_k, shared_q8_0;
};
inline constexpr ExpertLaunch kExpertWgmma{640, 1, 225280, 224256, 232448, 225280};

}  // namespace granary::gpu::cuda

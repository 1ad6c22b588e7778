// SPDX-License-Identifier: GPL-3.0-or-later
// How fast a device is, and what that makes of a plan.
#pragma once

#include <cstdint>
#include <vector>

namespace granary {

// The fewest figures that tell apart what changes with settings: bytes over the link (budget,
// chunk), products (tokens), unpacking (chunk), attention (depth), weights (answers) and launches
// (layers). Dense matrices and experts share one rate: both are quantised weights times rows, and
// what experts lose with few rows each is the unpacking, which is counted by itself.
struct Rates {
    double link = 0;       // bytes/s, weights from host memory to the device, as chunks stream them
    double gather = 0;     // bytes/s, the same for the few experts that a token misses
    double cpu = 0;        // bytes/s, of missed experts that the processor computes for a token
    double memory = 0;     // bytes/s, the device's own memory; bounds the reading of K/V
    double weights = 0;    // bytes/s, weights as they meet one row: for a token
    double unpack = 0;     // bytes/s, weights as they meet many rows: once a chunk
    double products = 0;   // FLOP/s, weights times many rows, with all that is done row by row
    double attention = 0;  // FLOP/s of a prompt's attention
    double cells = 0;      // values/s of K and V that a token's attention takes, memory aside
    double layer = 0;      // s, what a layer of a pass costs beside
    // Measured on a processor with `from` threads, guessed for `to`: what computes, follows.
    Rates with_threads(uint32_t from, uint32_t to) const;
    bool operator==(const Rates&) const = default;
};

// Of a processor that nobody has measured.
Rates unmeasured_host(uint32_t threads);
// Of a GPU that nobody has measured: what its clocks and widths promise, operations and bytes a
// second, and what became of such promises on one that was.
Rates unmeasured_card(double products, double memory);

// A stretch of a schedule, with what is predicted of it.
struct ChunksTime {
    uint32_t from = 0, to = 0;  // cells
    uint32_t chunk = 0;         // tokens of each, but the last one
    uint64_t loan_bytes = 0;
    uint64_t kv_bytes = 0;    // at its end, of the prompt's own cells
    uint32_t rows_first = 0;  // of experts that have a slot, at its first and
    uint32_t rows_last = 0;   // last chunk
    bool streamed = false;
    double seconds = 0;
    double last_tok_s = 0;  // of its last chunk
};
struct PromptTime {
    double seconds = 0;
    std::vector<ChunksTime> stretches;
};

}  // namespace granary

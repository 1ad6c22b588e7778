// SPDX-License-Identifier: GPL-3.0-or-later
// A conversation on disk, so that a long document is read once and reopened in a moment.
//
//   FileHeader                       all that decides whether the file can be used
//   Span [spans]                     u32 end, u32 kind
//   TokenId [tokens]
//   messages                         each u32 role bytes, u32 content bytes, role, content
//   FileCheckpoint [checkpoints]     newest first
//   their states                     each header.state_bytes, then f32 [vocab] where it has logits
//   cells of K/V                     whole steps as they lie, of the last one each part's rows
//   XXH3-128 of everything before
//
// Little-endian. A reader takes its own version alone; damage is found by the hash. Whoever can
// write the file can also forge the hash: nothing in it is used before its bounds are checked, and
// numbers of cells and states can be any, as those of a model can.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/content_hash.h"
#include "engine/kv/kv_layout.h"

namespace granary {

struct FileHeader {
    static constexpr std::array<char, 8> kMagic{'G', 'R', 'A', 'N', 'T', 'A', 'L', 'K'};
    static constexpr uint32_t kVersion = 1;

    std::array<char, 8> magic = kMagic;
    uint32_t version = kVersion;
    uint32_t header_bytes = 0;
    uint64_t file_bytes = 0;
    ContentHash::Digest model{};  // gguf::identity_of
    std::array<char, 64> model_name{};
    std::array<char, 16> kv_format{};  // gpu::kv_format_name
    uint64_t step_bytes = 0;           // of kStepCells cells, all layers
    uint32_t step_cells = 0;
    uint32_t arithmetic = 0;   // gpu::Arithmetic
    uint64_t state_bytes = 0;  // 0: the model keeps no state
    uint32_t vocab = 0;
    uint32_t cells = 0;   // whose K/V is here
    uint32_t tokens = 0;  // that were said; those behind `cells` must be read again
    uint32_t spans = 0;
    uint32_t messages = 0;
    uint32_t checkpoints = 0;
    uint64_t message_bytes = 0;
    uint32_t rope_kind = 0;      // RopeKind
    float rope_factor = 0;       // 0 where rope_kind is none
    ContentHash::Digest hash{};  // of the header before it

    ContentHash::Digest computed_hash() const;
};
static_assert(sizeof(FileHeader) == 200);

struct FileSpan {
    uint32_t end = 0, kind = 0;
};
struct FileCheckpoint {
    uint32_t cells = 0, has_logits = 0;
};

inline constexpr uint64_t kMostMessageBytes = 64 << 20;
inline constexpr uint32_t kMostMessages = 1 << 16;
inline constexpr uint32_t kMostFileCheckpoints = 64;

// The bytes that `cells` cells take in a K/V range, in the order of the file: whole steps, then
// what the last one has of each part.
struct KvRun {
    uint64_t offset = 0, bytes = 0;  // from the range's first byte
};
std::vector<KvRun> kv_runs(const KvLayout& kv, uint32_t cells);

}  // namespace granary

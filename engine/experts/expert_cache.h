// SPDX-License-Identifier: GPL-3.0-or-later
// The expert cache: slots in row order over the expert range. A row has one slot of every layer;
// a slot belongs to its layer for life. Which slots may be used follows from two spans of bytes.
//
// The tables lie on the device, which owns them while it works. Between two pieces of work the
// host reads them back, owns its copy, changes it and publishes it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/memory/layout.h"
#include "engine/model/model.h"
#include "gpu/device.h"
#include "granary/engine.h"

namespace granary {

class ExpertCache {
  public:
    // Bytes of the expert range where experts may lie: [0, low) and [top, end).
    struct Spans {
        uint64_t low = 0, top = 0, end = 0;
        bool operator==(const Spans&) const = default;
    };

    // `tables`: one table per layer in device memory, as workspace_layout says. `rows`: slots of
    // each layer that fit the range. With rows 0 every expert is read where the file has it.
    static Result<std::unique_ptr<ExpertCache>> create(const Model& model, gpu::Device& device,
                                                       uint32_t rows, std::byte* range,
                                                       std::byte* tables);

    uint32_t rows() const { return rows_; }
    uint32_t usable_slots() const { return usable_slots_; }
    uint32_t resident() const;
    // Whether every expert had a slot when host and device last knew the same: then it still has,
    // since the device takes none away that nobody misses.
    bool complete() const { return complete_; }

    // Reads the tables back. The device must not be at work; the caller waits for the compute
    // stream before it looks at them.
    void read_back();
    // The tables that were read back have come.
    void note_completeness();
    // Writes the host's copy to the device, on the compute stream.
    void publish();
    // In the host's copy no slot holds an expert any more, and none is hot.
    void forget();

    // Where experts may lie from now on, published. An expert that loses its slot takes that of its
    // layer's coldest one if it is hotter. Returns how many slots experts lost. The copies are on
    // the compute stream; the bytes outside the spans may be reused after it is synchronised.
    uint32_t set_spans(const Spans& spans);

    // Loads experts into empty usable slots, in row order the lowest numbers first: the state
    // after a load. Errors: cancelled.
    Result<void> fill(const LoadProgress& progress, uint64_t done, uint64_t total);
    uint64_t fill_bytes() const;  // that fill would copy

    // One layer's table, for kernels: device pointers.
    const gpu::ExpertCacheView& view(uint32_t layer) const { return views_[layer]; }
    // The same as the host knows it: as of the last read_back() and what it changed since.
    const gpu::ExpertCacheView& known(uint32_t layer) const { return known_[layer]; }

    // Of all layers since the tables were made, as the host knows them.
    struct Picks {
        uint64_t hits = 0, misses = 0, bytes_copied = 0;
    };
    Picks picks() const;

    // 0, 1, .. experts - 1: the list for kernels that go through all of a layer's experts.
    std::span<const int32_t> numbers() const { return numbers_; }

    // The slot that the byte at `offset` of the expert range belongs to.
    struct Slot {
        uint32_t layer = 0;
        uint32_t row = 0;
        bool exists = false;
    };
    Slot slot_at(uint64_t offset) const;

  private:
    ExpertCache(const Model& model, gpu::Device& device, uint32_t rows, std::byte* tables,
                gpu::HostBuffer copy);
    uint64_t begin_of(uint32_t row, uint32_t layer) const {
        return row * row_bytes_ + slot_offset_[layer];
    }
    void move(uint32_t layer, uint32_t from, uint32_t to);
    void load(uint32_t layer, int32_t expert, uint32_t slot);
    void evict(uint32_t layer, uint32_t slot);

    const Model& model_;
    gpu::Device& device_;
    uint32_t rows_;
    uint64_t row_bytes_;
    std::vector<uint64_t> slot_offset_;                // [layers + 1] in a row
    std::byte* tables_;                                // on the device
    gpu::HostBuffer copy_;                             // the host's
    std::vector<gpu::ExpertCacheView> views_, known_;  // of tables_, of copy_
    std::vector<int32_t> numbers_;
    uint32_t usable_slots_ = 0;
    bool complete_ = false;
};

}  // namespace granary

// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/experts/expert_cache.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace granary {

namespace {

// A layer's view of the table that begins at `table`.
gpu::ExpertCacheView view_of(const MoeWeights& moe, std::byte* table, const ModelFacts& facts,
                             uint32_t rows) {
    const TableLayout layout = table_layout(facts.experts, facts.experts_used);
    gpu::ExpertCacheView view;
    view.experts = facts.experts;
    view.slots = rows;
    view.entries = reinterpret_cast<gpu::ExpertEntry*>(table + layout.entries);
    view.home = reinterpret_cast<gpu::ExpertEntry*>(table + layout.home);
    view.slot_base = reinterpret_cast<std::byte**>(table + layout.slot_base);
    view.slot_of = reinterpret_cast<int32_t*>(table + layout.slot_of);
    view.expert_in = reinterpret_cast<int32_t*>(table + layout.expert_in);
    view.heat = reinterpret_cast<float*>(table + layout.heat);
    view.last_use = reinterpret_cast<uint32_t*>(table + layout.last_use);
    view.picks = reinterpret_cast<int32_t*>(table + layout.picks);
    view.usable = reinterpret_cast<uint8_t*>(table + layout.usable);
    auto* const counters = reinterpret_cast<uint64_t*>(table + layout.counters);
    view.hits = counters;
    view.misses = counters + 1;
    view.bytes_copied = counters + 2;
    view.gate_bytes = moe.gate_bytes;
    view.up_bytes = moe.up_bytes;
    view.down_bytes = moe.down_bytes;
    view.up_offset = moe.up_offset;
    view.down_offset = moe.down_offset;
    return view;
}

}  // namespace

Result<std::unique_ptr<ExpertCache>> ExpertCache::create(const Model& model, gpu::Device& device,
                                                         uint32_t rows, std::byte* range,
                                                         std::byte* tables) {
    const TableLayout layout = table_layout(model.facts.experts, model.facts.experts_used);
    auto copy = device.page_locked(model.facts.layers * layout.bytes);
    if (!copy) return tl::unexpected(copy.error());
    std::memset(copy->data.get(), 0, copy->bytes);
    std::unique_ptr<ExpertCache> cache(
        new ExpertCache(model, device, rows, tables, std::move(*copy)));
    for (uint32_t n = 0; n < model.facts.layers; ++n)
        for (uint32_t row = 0; row < rows; ++row)
            cache->known_[n].slot_base[row] = range + cache->begin_of(row, n);
    cache->forget();
    return cache;
}

ExpertCache::ExpertCache(const Model& model, gpu::Device& device, uint32_t rows, std::byte* tables,
                         gpu::HostBuffer copy)
    : model_(model),
      device_(device),
      rows_(rows),
      row_bytes_(model.facts.row_bytes),
      slot_offset_(model.facts.layers + 1),
      tables_(tables),
      copy_(std::move(copy)),
      numbers_(model.facts.experts) {
    std::iota(numbers_.begin(), numbers_.end(), 0);
    const uint64_t stride = table_layout(model.facts.experts, model.facts.experts_used).bytes;
    for (uint32_t n = 0; n < model.facts.layers; ++n) {
        const MoeWeights& moe = model.layers[n].moe;
        slot_offset_[n + 1] = slot_offset_[n] + model.facts.expert_bytes[n];
        views_.push_back(view_of(moe, tables_ + n * stride, model.facts, rows));
        known_.push_back(view_of(moe, copy_.data.get() + n * stride, model.facts, rows));
    }
}

void ExpertCache::forget() {
    complete_ = false;
    for (uint32_t n = 0; n < known_.size(); ++n) {
        gpu::ExpertCacheView& known = known_[n];
        const std::vector<gpu::ExpertEntry>& home = model_.layers[n].moe.home;
        std::copy(home.begin(), home.end(), known.entries);
        std::copy(home.begin(), home.end(), const_cast<gpu::ExpertEntry*>(known.home));
        std::fill_n(known.slot_of, known.experts, -1);
        std::fill_n(known.expert_in, rows_, -1);
        std::fill_n(known.heat, known.experts, 0.0f);
        std::fill_n(known.last_use, known.experts, 0u);
    }
}

void ExpertCache::read_back() {
    device_.copy(gpu::StreamId::compute, copy_.data.get(), tables_, copy_.bytes);
}

void ExpertCache::note_completeness() {
    complete_ = resident() == known_.size() * model_.facts.experts;
}

void ExpertCache::publish() {
    note_completeness();
    device_.copy(gpu::StreamId::compute, tables_, copy_.data.get(), copy_.bytes);
}

uint32_t ExpertCache::resident() const {
    uint32_t count = 0;
    for (const gpu::ExpertCacheView& view : known_)
        for (uint32_t row = 0; row < rows_; ++row) count += view.expert_in[row] >= 0;
    return count;
}

ExpertCache::Picks ExpertCache::picks() const {
    Picks picks;
    for (const gpu::ExpertCacheView& view : known_) {
        picks.hits += *view.hits;
        picks.misses += *view.misses;
        picks.bytes_copied += *view.bytes_copied;
    }
    return picks;
}

void ExpertCache::evict(uint32_t layer, uint32_t slot) {
    gpu::ExpertCacheView& view = known_[layer];
    const int32_t expert = view.expert_in[slot];
    if (expert < 0) return;
    view.expert_in[slot] = -1;
    view.slot_of[expert] = -1;
    view.entries[expert] = view.home[expert];
}

void ExpertCache::load(uint32_t layer, int32_t expert, uint32_t slot) {
    gpu::ExpertCacheView& view = known_[layer];
    std::byte* const base = view.slot_base[slot];
    const gpu::ExpertEntry& home = view.home[expert];
    device_.copy(gpu::StreamId::compute, base, home.gate, view.gate_bytes);
    device_.copy(gpu::StreamId::compute, base + view.up_offset, home.up, view.up_bytes);
    device_.copy(gpu::StreamId::compute, base + view.down_offset, home.down, view.down_bytes);
    view.expert_in[slot] = expert;
    view.slot_of[expert] = static_cast<int32_t>(slot);
    view.entries[expert] = {base, base + view.up_offset, base + view.down_offset};
}

void ExpertCache::move(uint32_t layer, uint32_t from, uint32_t to) {
    gpu::ExpertCacheView& view = known_[layer];
    const int32_t expert = view.expert_in[from];
    std::byte* const base = view.slot_base[to];
    evict(layer, to);
    evict(layer, from);
    device_.copy(gpu::StreamId::compute, base, view.slot_base[from],
                 view.down_offset + view.down_bytes);
    view.expert_in[to] = expert;
    view.slot_of[expert] = static_cast<int32_t>(to);
    view.entries[expert] = {base, base + view.up_offset, base + view.down_offset};
}

uint32_t ExpertCache::set_spans(const Spans& spans) {
    uint32_t lost = 0;
    usable_slots_ = 0;
    // With nothing given away the marks meet, and a slot may lie across them.
    const uint64_t low = spans.low == spans.top ? spans.end : spans.low;
    std::vector<uint32_t> losers, keepers;
    for (uint32_t n = 0; n < known_.size(); ++n) {
        gpu::ExpertCacheView& view = known_[n];
        losers.clear();
        keepers.clear();
        for (uint32_t row = 0; row < rows_; ++row) {
            const uint64_t begin = begin_of(row, n);
            const uint64_t end = begin + model_.facts.expert_bytes[n];
            const bool usable = end <= low || (begin >= spans.top && end <= spans.end);
            view.usable[row] = usable;
            usable_slots_ += usable;
            if (usable)
                keepers.push_back(row);
            else if (view.expert_in[row] >= 0)
                losers.push_back(row);
        }
        const auto heat = [&](uint32_t row) {
            return view.expert_in[row] < 0 ? -1.0f : view.heat[view.expert_in[row]];
        };
        std::stable_sort(losers.begin(), losers.end(),
                         [&](uint32_t a, uint32_t b) { return heat(a) > heat(b); });
        std::stable_sort(keepers.begin(), keepers.end(),
                         [&](uint32_t a, uint32_t b) { return heat(a) < heat(b); });
        size_t next = 0;
        for (uint32_t row : losers) {
            if (next < keepers.size() && heat(row) > heat(keepers[next])) {
                lost += view.expert_in[keepers[next]] >= 0;
                move(n, row, keepers[next++]);
            } else {
                evict(n, row);
                ++lost;
            }
        }
    }
    publish();
    return lost;
}

uint64_t ExpertCache::fill_bytes() const {
    uint64_t bytes = 0;
    for (uint32_t n = 0; n < known_.size(); ++n)
        for (uint32_t row = 0; row < rows_; ++row)
            if (known_[n].usable[row] && known_[n].expert_in[row] < 0)
                bytes += model_.facts.expert_bytes[n];
    return bytes;
}

Result<void> ExpertCache::fill(const LoadProgress& progress, uint64_t done, uint64_t total) {
    std::vector<int32_t> next(known_.size(), 0);
    for (uint32_t row = 0; row < rows_; ++row) {
        for (uint32_t n = 0; n < known_.size(); ++n) {
            const gpu::ExpertCacheView& view = known_[n];
            if (!view.usable[row] || view.expert_in[row] >= 0) continue;
            while (next[n] < static_cast<int32_t>(view.experts) && view.slot_of[next[n]] >= 0)
                ++next[n];
            if (next[n] == static_cast<int32_t>(view.experts)) continue;
            load(n, next[n], row);
            done += model_.facts.expert_bytes[n];
        }
        if (progress.on_bytes) progress.on_bytes(std::min(done, total), total);
        if (progress.stop && progress.stop->requested())
            return granary::fail(ErrorKind::cancelled, "loading was stopped");
    }
    publish();
    return {};
}

ExpertCache::Slot ExpertCache::slot_at(uint64_t offset) const {
    if (rows_ == 0 || offset >= rows_ * row_bytes_) return {};
    const uint64_t within = offset % row_bytes_;
    const auto above = std::upper_bound(slot_offset_.begin(), slot_offset_.end(), within);
    return {static_cast<uint32_t>(above - slot_offset_.begin() - 1),
            static_cast<uint32_t>(offset / row_bytes_), true};
}

}  // namespace granary

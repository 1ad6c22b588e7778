// SPDX-License-Identifier: GPL-3.0-or-later
// What the memory manager shows of itself: sums by owner, log lines, events and map frames.
#include <algorithm>
#include <cmath>

#include "engine/memory/manager.h"

namespace granary {
namespace {

constexpr auto kFrameInterval = std::chrono::milliseconds(16);

}  // namespace

double MemoryManager::seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - telemetry_.opened)
        .count();
}

uint64_t MemoryManager::driver_allocations_after_load() const {
    return allocations_at_load_ ? device_.driver_allocations() - allocations_at_load_ : 0;
}

// One line for each change of hands, the same tail on all: for people and for parsers.
void MemoryManager::log_change(const std::string& what) const {
    if (log_)
        log_(LogLevel::info,
             what + "; slots left " + std::to_string(experts_->usable_slots()) +
                 "; new driver memory: " + (driver_allocations_after_load() ? "ASKED" : "none"));
}

void MemoryManager::event(MemoryEvent::Kind kind, uint64_t cells, uint32_t granules,
                          uint32_t experts) {
    MemoryEvent event{kind, seconds(), cells, granules, experts, experts_->usable_slots()};
    if (!telemetry_.events.push(event))
        telemetry_.counters.events_dropped.fetch_add(1, std::memory_order_relaxed);
}

Owner MemoryManager::expert_owner(uint32_t place) const {
    if (place >= end_ - loan_) return Owner::loan;
    const bool slots = experts_->slot_at(place * granule_bytes_).exists;
    return slots ? Owner::experts : Owner::spare;
}

std::vector<Owner> MemoryManager::owners() const {
    std::vector<Owner> owners(device_.granules(), Owner::spare);
    const auto mark = [&](const Mapped& range, Owner owner) {
        for (gpu::GranuleId id : range.granules)
            if (id != kNone) owners[id] = owner;
    };
    mark(fixed_, Owner::fixed);
    mark(workspace_, Owner::workspace);
    mark(state_, Owner::state);
    for (const auto& [id, range] : kv_) mark(range, Owner::kv);
    for (uint32_t place = 0; place < range_.granules.size(); ++place)
        if (range_.granules[place] != kNone) owners[range_.granules[place]] = expert_owner(place);
    for (gpu::GranuleId id : quarantined_) owners[id] = Owner::quarantined;
    return owners;
}

std::array<uint64_t, kOwners> MemoryManager::bytes() const {
    std::array<uint64_t, kOwners> bytes{};
    for (Owner owner : owners()) bytes[static_cast<int>(owner)] += granule_bytes_;
    bytes[static_cast<int>(Owner::spare)] -= released_.size() * granule_bytes_;
    return bytes;
}

void MemoryManager::publish(bool now, Compute compute) {
    const auto time = std::chrono::steady_clock::now();
    if (!now && time - last_frame_ < kFrameInterval) return;
    if (compute == Compute::idle) (void)sync_tables();
    last_frame_ = time;
    MapFrame& frame = telemetry_.map.back();
    frame.seconds = seconds();
    frame.granule_bytes = granule_bytes_;
    frame.experts_per_layer = model_.facts.experts;
    frame.words.assign(device_.granules(), GranuleWord{});
    frame.places.assign(device_.granules(), Place{});
    frame.granules.fill(0);
    frame.ranges.resize(3 + (plan_.state > 0) + kv_.size());

    uint16_t index = 0;
    const auto write = [&](const Mapped& range, auto&& word) {
        RangeInfo& info = frame.ranges[index];
        info.name = range.name;
        info.places = static_cast<uint32_t>(range.granules.size());
        for (uint32_t place = 0; place < range.granules.size(); ++place) {
            const gpu::GranuleId id = range.granules[place];
            if (id == kNone) continue;
            frame.words[id] = word(place);
            frame.places[id] = {index, place};
        }
        ++index;
    };
    write(fixed_, [](uint32_t) { return GranuleWord::make(Owner::fixed, 0, 0, 0, 0); });
    write(workspace_, [](uint32_t) { return GranuleWord::make(Owner::workspace, 0, 0, 0, 0); });
    write(range_, [&](uint32_t place) {
        const Owner owner = expert_owner(place);
        if (owner != Owner::experts) return GranuleWord::make(owner, 0, 0, 0, 0);
        const ExpertCache::Slot slot = experts_->slot_at(place * granule_bytes_);
        const gpu::ExpertCacheView& view = experts_->known(slot.layer);
        const int32_t expert = view.expert_in[slot.row];
        if (expert < 0) return GranuleWord::make(owner, GranuleWord::empty_slot, 0, 0, 0);
        const float heat = std::max(view.heat[expert], 0.0f);
        return GranuleWord::make(
            owner, 0, slot.layer * model_.facts.experts + static_cast<uint32_t>(expert),
            static_cast<unsigned>(std::log2(1.0f + heat)), view.last_use[expert]);
    });
    if (plan_.state > 0)
        write(state_, [](uint32_t) { return GranuleWord::make(Owner::state, 0, 0, 0, 0); });
    for (const auto& [id, range] : kv_)
        write(range, [&](uint32_t place) {
            return GranuleWord::make(
                Owner::kv, 0, static_cast<uint32_t>(place * granule_bytes_ / kv_layout_.step_bytes),
                0, 0);
        });
    for (gpu::GranuleId id : quarantined_)
        frame.words[id] = GranuleWord::make(Owner::quarantined, 0, 0, 0, 0);
    for (gpu::GranuleId id : released_)
        frame.words[id] = GranuleWord::make(Owner::spare, GranuleWord::given_back, 0, 0, 0);
    for (const GranuleWord& word : frame.words)
        if (word.in_budget()) ++frame.granules[static_cast<int>(word.owner())];

    Counters& counters = telemetry_.counters;
    const ExpertCache::Picks picks = experts_->picks();
    counters.expert_hits.store(picks.hits, std::memory_order_relaxed);
    counters.expert_misses.store(picks.misses, std::memory_order_relaxed);
    counters.bytes_copied.store(picks.bytes_copied, std::memory_order_relaxed);
    counters.driver_allocations_after_load.store(driver_allocations_after_load(),
                                                 std::memory_order_relaxed);
    telemetry_.map.publish();
}

}  // namespace granary

// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/memory/pool.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace granary::test {

constexpr gpu::GranuleId kNone = WatchedDevice::kNone;

Pool::Pool(Model given, const DeviceFacts& device_facts, const Settings& settings,
           std::unique_ptr<gpu::Device> below)
    : model(std::move(given)), facts(device_facts) {
    auto planned = Planner(model.facts, facts).plan(settings);
    if (planned)
        plan = *planned;
    else
        ADD_FAILURE() << planned.error().message();
    device = std::make_unique<WatchedDevice>(std::move(below));
}

Result<void> Pool::create() {
    auto made = MemoryManager::create(
        *device, model, plan, facts, telemetry,
        [this](LogLevel, std::string_view line) { log.emplace_back(line); }, {});
    if (!made) return tl::unexpected(made.error());
    memory = std::move(*made);
    return {};
}

Result<Plan> Pool::plan_for(uint64_t budget, uint32_t prefill) const {
    Settings settings = plan.settings;
    settings.vram_budget = budget;
    settings.prefill = {};
    if (prefill) settings.prefill = {AutoCount::Kind::number, prefill};
    return Planner(model.facts, facts).plan(settings);
}

const std::byte* Pool::experts_base() const {
    return memory->experts().view(0).slot_base[0];  // the first slot of the first row
}

// The device's own tables say who has which granule.
void Pool::check_owners() {
    const std::byte* const experts_at = experts_base();
    std::map<const std::byte*, Owner> bases{{memory->workspace(), Owner::workspace},
                                            {memory->state(0), Owner::state}};
    for (const auto& [kv, stamps_of_it] : stamps) bases[memory->kv_base(kv)] = Owner::kv;
    // What is mapped and belongs to nobody is out of use; what is mapped nowhere is, too.
    owners_.assign(device->granules(), Owner::quarantined);
    std::vector<uint8_t> seen(device->granules(), 0);
    for (const auto& [range, table] : device->tables()) {
        const std::byte* const base = device->base(range);
        const auto known = bases.find(base);
        const Owner owner = known != bases.end()                       ? known->second
                            : range == device->tables().begin()->first ? Owner::fixed
                                                                       : Owner::quarantined;
        for (gpu::GranuleId id : table) {
            if (id == kNone) continue;
            ASSERT_LT(id, seen.size());
            ASSERT_FALSE(seen[id]++) << "granule " << id << " is mapped twice";
            ASSERT_TRUE(device->held(id)) << "granule " << id << " was given back";
            if (base != experts_at) owners_[id] = owner;
        }
    }
    // The expert range: two runs from its ends, experts but for the loan and what has no slot.
    const WatchedDevice::Table* const experts = device->table_at(experts_at);
    ASSERT_NE(experts, nullptr);
    const uint32_t lent = owned(Owner::loan);
    const uint64_t slots_end = memory->experts().rows() * model.facts.row_bytes;
    usable_.assign(experts->size(), 0);
    size_t changes = 0;
    for (size_t place = 0; place < experts->size(); ++place) {
        const bool here = (*experts)[place] != kNone;
        if (place > 0) changes += here != ((*experts)[place - 1] != kNone);
        if (!here) continue;
        const bool loan = place + lent >= experts->size();
        usable_[place] = !loan;
        owners_[(*experts)[place]] = loan                                     ? Owner::loan
                                     : place * plan.granule_bytes < slots_end ? Owner::experts
                                                                              : Owner::spare;
    }
    ASSERT_LE(changes, 2u) << "the expert range is cut into more than two runs";
    for (size_t place = experts->size() - lent; place < experts->size(); ++place)
        ASSERT_NE((*experts)[place], kNone) << "a lent place has no memory";
}

void Pool::check_frame() {
    // Now and then only, since it waits for streams that the next change must wait for itself.
    if (++checks_ % 4 == 0) memory->publish(true, MemoryManager::Compute::idle);
    const MapFrame* const frame = telemetry.map.take();
    if (!frame) return;
    ASSERT_EQ(frame->words.size(), device->granules());
    uint32_t gone = 0;
    for (gpu::GranuleId id = 0; id < frame->words.size(); ++id) {
        const GranuleWord word = frame->words[id];
        const Place at = frame->places[id];
        if (word.flags() & GranuleWord::given_back) {
            ++gone;
            ASSERT_FALSE(device->held(id));
            ASSERT_EQ(at.range, Place::kNowhere);
            continue;
        }
        ASSERT_EQ(owner_name(word.owner()), owner_name(owners_[id])) << "granule " << id;
        ASSERT_EQ(at.range == Place::kNowhere, word.owner() == Owner::quarantined);
    }
    ASSERT_EQ(frame->words.size() - gone, plan.budget_bytes / plan.granule_bytes);
    ASSERT_EQ(std::accumulate(frame->granules.begin(), frame->granules.end(), 0u),
              frame->words.size() - gone);
}

void Pool::check_slots(uint32_t first_layer, uint32_t layers) {
    uint32_t usable_slots = 0;
    uint64_t offset = 0;
    for (uint32_t n = 0; n < model.facts.layers; ++n) {
        const gpu::ExpertCacheView& view = memory->experts().view(n);
        const uint64_t slot_bytes = model.facts.expert_bytes[n];
        if (checks_ % 4 == 0) {
            ASSERT_EQ(std::memcmp(view.expert_in, memory->experts().known(n).expert_in,
                                  view.slots * sizeof view.expert_in[0]),
                      0)
                << "device and host know different residents of layer " << n;
        }
        const bool read = has_content && n >= first_layer && n - first_layer < layers;
        for (uint32_t row = 0; row < view.slots; ++row) {
            const uint64_t begin = row * model.facts.row_bytes + offset;
            bool whole = true;
            for (uint64_t place = begin / plan.granule_bytes;
                 place * plan.granule_bytes < begin + slot_bytes; ++place)
                whole = whole && place < usable_.size() && usable_[place];
            ASSERT_EQ(view.usable[row] != 0, whole) << "layer " << n << ", row " << row;
            usable_slots += whole;
            const int32_t expert = view.expert_in[row];
            if (expert < 0) continue;
            ASSERT_TRUE(whole) << "an expert lies where memory is not";
            ASSERT_EQ(view.slot_of[expert], static_cast<int32_t>(row));
        }
        for (uint32_t e = 0; e < view.experts; ++e) {
            const gpu::ExpertEntry& entry = view.entries[e];
            const gpu::ExpertEntry& home = model.layers[n].moe.home[e];
            const int32_t slot = view.slot_of[e];
            if (slot < 0) {
                ASSERT_EQ(entry.gate, home.gate);
                continue;
            }
            ASSERT_EQ(view.expert_in[slot], static_cast<int32_t>(e));
            ASSERT_EQ(entry.gate, view.slot_base[slot]);
            ASSERT_EQ(entry.down, view.slot_base[slot] + view.down_offset);
            if (!read) continue;
            ASSERT_EQ(std::memcmp(entry.gate, home.gate, view.gate_bytes), 0);
            ASSERT_EQ(std::memcmp(entry.up, home.up, view.up_bytes), 0);
            ASSERT_EQ(std::memcmp(entry.down, home.down, view.down_bytes), 0);
        }
        offset += slot_bytes;
    }
    ASSERT_EQ(usable_slots, memory->experts().usable_slots());
}

void Pool::check_books() {
    ASSERT_TRUE(device->refused().empty()) << device->refused().front();
    const auto bytes = memory->bytes();
    ASSERT_EQ(std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}), plan.budget_bytes);
    ASSERT_LE(device->driver_bytes(), plan.budget_bytes);
    ASSERT_EQ(memory->driver_allocations_after_load(), 0u);
    check_owners();
    if (::testing::Test::HasFatalFailure()) return;
    std::array<uint64_t, kOwners> counted{};
    for (const Owner owner : owners_) counted[static_cast<int>(owner)] += plan.granule_bytes;
    const int out = static_cast<int>(Owner::quarantined);
    counted[out] -= (device->granules() - memory->granules()) * plan.granule_bytes;
    for (int i = 0; i < kOwners; ++i)
        ASSERT_EQ(bytes[i], counted[i]) << owner_name(static_cast<Owner>(i));
}

void Pool::check(uint32_t first_layer, uint32_t layers) {
    check_books();
    if (::testing::Test::HasFatalFailure()) return;
    check_frame();
    if (::testing::Test::HasFatalFailure()) return;
    check_slots(first_layer, layers);
    for (const auto& [kv, stamps_of_it] : stamps) check_stamps(kv);
}

void Pool::check_after_failure() {
    memory->publish(true, MemoryManager::Compute::idle);
    check();
}

std::pair<uint32_t, uint32_t> Pool::marks() const {
    const WatchedDevice::Table& table = *device->table_at(experts_base());
    const auto first = std::find(table.begin(), table.end(), kNone);
    const auto last = std::find_if(first, table.end(), [](auto id) { return id != kNone; });
    return {static_cast<uint32_t>(first - table.begin()),
            static_cast<uint32_t>(last - table.begin())};
}

uint64_t Pool::expert_bytes() const {
    uint64_t bytes = 0;
    for (size_t place = 0; place < usable_.size(); ++place)
        if (usable_[place] &&
            place * plan.granule_bytes < memory->experts().rows() * model.facts.row_bytes)
            bytes += plan.granule_bytes;
    return bytes;
}

uint64_t Pool::idle_expert_bytes() const {
    uint64_t used = 0;
    for (uint32_t n = 0; n < model.facts.layers; ++n) {
        const gpu::ExpertCacheView& view = memory->experts().view(n);
        for (uint32_t row = 0; row < view.slots; ++row)
            if (view.usable[row]) used += view.down_offset + view.down_bytes;
    }
    return expert_bytes() - std::min(expert_bytes(), used);
}

// ---- K/V

size_t Pool::mapped(KvId kv) const {
    const WatchedDevice::Table* const table = device->table_at(memory->kv_base(kv));
    size_t places = 0;
    while (table && places < table->size() && (*table)[places] != kNone) ++places;
    return places;
}

void Pool::stamp(KvId kv, size_t first_place, size_t places) {
    std::vector<uint64_t>& stamps_of_it = stamps[kv];
    stamps_of_it.resize(first_place + places);
    for (size_t place = first_place; place < first_place + places; ++place) {
        stamps_of_it[place] = next_stamp_++;
        if (has_content)
            std::memcpy(memory->kv_base(kv) + place * plan.granule_bytes, &stamps_of_it[place],
                        sizeof(uint64_t));
    }
}

void Pool::restamp(KvId kv) {
    std::vector<uint64_t>& stamps_of_it = stamps.at(kv);
    for (size_t place = 0; place < stamps_of_it.size(); ++place) {
        stamps_of_it[place] = next_stamp_++;
        if (!has_content) continue;
        device->copy(gpu::StreamId::compute, memory->kv_base(kv) + place * plan.granule_bytes,
                     &stamps_of_it[place], sizeof(uint64_t));
    }
}

void Pool::check_stamps(KvId kv) const {
    const std::vector<uint64_t>& stamps_of_it = stamps.at(kv);
    ASSERT_GE(mapped(kv), stamps_of_it.size());
    if (!has_content) return;
    for (size_t place = 0; place < stamps_of_it.size(); ++place) {
        uint64_t found = 0;
        std::memcpy(&found, memory->kv_base(kv) + place * plan.granule_bytes, sizeof found);
        ASSERT_EQ(found, stamps_of_it[place]) << "K/V " << kv << ", place " << place;
    }
}

void Pool::use_expert(uint32_t layer, uint32_t expert, uint32_t tick) {
    const gpu::ExpertCacheView& view = memory->experts().view(layer);
    view.heat[expert] += 1;
    view.last_use[expert] = tick;
    if (view.slot_of[expert] >= 0) return;
    int32_t slot = -1;
    for (uint32_t row = 0; row < view.slots; ++row) {
        if (!view.usable[row]) continue;
        const int32_t held = view.expert_in[row];
        if (slot < 0 || held < 0 ||
            (view.expert_in[slot] >= 0 && view.heat[held] < view.heat[view.expert_in[slot]]))
            slot = static_cast<int32_t>(row);
        if (held < 0) break;
    }
    if (slot < 0) return;
    const gpu::ExpertEntry& home = view.home[expert];
    if (const int32_t evicted = view.expert_in[slot]; evicted >= 0) {
        view.slot_of[evicted] = -1;
        view.entries[evicted] = view.home[evicted];
    }
    std::byte* const base = view.slot_base[slot];
    view.entries[expert] = {base, base + view.up_offset, base + view.down_offset};
    view.slot_of[expert] = slot;
    view.expert_in[slot] = static_cast<int32_t>(expert);
    if (!has_content) return;
    std::memcpy(base, home.gate, view.gate_bytes);
    std::memcpy(base + view.up_offset, home.up, view.up_bytes);
    std::memcpy(base + view.down_offset, home.down, view.down_bytes);
}

}  // namespace granary::test

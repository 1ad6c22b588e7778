// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/memory/manager.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace granary {
namespace {

constexpr auto kFrameInterval = std::chrono::milliseconds(16);

std::string plural(uint64_t n, const char* one) {
    return std::to_string(n) + " " + one + (n == 1 ? "" : "s");
}

}  // namespace

MemoryManager::MemoryManager(gpu::Device& device, const Model& model, const Plan& plan,
                             const DeviceFacts& facts, Telemetry& telemetry, LogFunction log)
    : device_(device),
      model_(model),
      plan_(plan),
      facts_(facts),
      telemetry_(telemetry),
      log_(std::move(log)),
      kv_layout_(kv_layout(model.facts, plan.kv_format)),
      granule_bytes_(plan.granule_bytes),
      last_frame_(std::chrono::steady_clock::now() - kFrameInterval) {}

MemoryManager::~MemoryManager() {
    (void)quiesce();
    for (auto& [id, range] : kv_) {
        (void)device_.unmap(range.id, 0, mapped_places(range));
        device_.release(range.id);
    }
}

Result<std::unique_ptr<MemoryManager>> MemoryManager::create(gpu::Device& device, Model& model,
                                                             const Plan& plan,
                                                             const DeviceFacts& facts,
                                                             Telemetry& telemetry, LogFunction log,
                                                             const LoadProgress& progress) {
    std::unique_ptr<MemoryManager> manager(
        new MemoryManager(device, model, plan, facts, telemetry, std::move(log)));
    MemoryManager& m = *manager;
    if (auto r = m.reserve(m.fixed_, plan.fixed, "fixed"); !r) return tl::unexpected(r.error());
    if (auto r = m.reserve(m.workspace_, plan.workspace, "workspace"); !r)
        return tl::unexpected(r.error());
    if (auto r = m.reserve(m.state_, plan.state, "state"); !r) return tl::unexpected(r.error());
    if (auto r = m.reserve(m.range_, plan.expert_range, "experts"); !r)
        return tl::unexpected(r.error());

    const uint32_t total = plan.fixed + plan.workspace + plan.state + plan.expert_range;
    if (auto r = device.create_granules(total); !r) return tl::unexpected(r.error());
    std::vector<gpu::GranuleId> ids(total);
    std::iota(ids.begin(), ids.end(), 0u);
    const std::span<const gpu::GranuleId> all(ids);
    if (auto r = m.map(m.fixed_, 0, all.first(plan.fixed)); !r) return tl::unexpected(r.error());
    if (auto r = m.map(m.workspace_, 0, all.subspan(plan.fixed, plan.workspace)); !r)
        return tl::unexpected(r.error());
    if (auto r = m.map(m.state_, 0, all.subspan(plan.fixed + plan.workspace, plan.state)); !r)
        return tl::unexpected(r.error());
    if (auto r = m.map(m.range_, 0, all.last(plan.expert_range)); !r)
        return tl::unexpected(r.error());

    const WorkspaceLayout layout = workspace_layout(model.facts, facts, plan.max_context);
    m.experts_ = std::make_unique<ExpertCache>(
        model, device, plan.rows_at_start, device.base(m.range_.id), m.workspace() + layout.tables);
    m.end_ = plan.expert_range;
    m.low_ = m.top_ = m.end_ - plan.loan;
    m.update_spans();

    // Fixed weights: on a card they are copied and their pointers move.
    const uint64_t fixed_bytes = plan.fixed ? model.facts.fixed_bytes : 0;
    const uint64_t bytes = fixed_bytes + m.experts_->fill_bytes();
    uint64_t done = 0;
    if (plan.fixed) {
        std::byte* const base = device.base(m.fixed_.id);
        for (const Model::Fixed& fixed : model.fixed()) {
            device.copy(gpu::StreamId::compute, base + done, *fixed.pointer, fixed.bytes);
            *fixed.pointer = base + done;
            done += round_up(fixed.bytes, kSlotAlignment);
            if (progress.on_bytes) progress.on_bytes(done, bytes);
            if (progress.stop && progress.stop->requested())
                return fail(ErrorKind::cancelled, "loading was stopped");
        }
    }
    if (auto r = m.experts_->fill(progress, done, bytes); !r) return tl::unexpected(r.error());
    if (auto r = m.quiesce(); !r) return tl::unexpected(r.error());
    m.allocations_at_load_ = device.driver_allocations();
    m.publish(true);
    return manager;
}

Result<void> MemoryManager::reserve(Mapped& range, uint32_t places, std::string name) {
    auto id = device_.reserve(std::max(places, 1u));
    if (!id) return tl::unexpected(id.error());
    range.id = *id;
    range.granules.assign(places, kNone);
    range.name = std::move(name);
    return {};
}

Result<void> MemoryManager::map(Mapped& range, size_t first,
                                std::span<const gpu::GranuleId> granules) {
    if (granules.empty()) return {};
    if (auto r = device_.map(range.id, first, granules); !r) return r;
    std::copy(granules.begin(), granules.end(), range.granules.begin() + first);
    return {};
}

Result<void> MemoryManager::unmap(Mapped& range, size_t first, size_t count) {
    if (count == 0) return {};
    if (auto r = device_.unmap(range.id, first, count); !r) return r;
    std::fill_n(range.granules.begin() + first, count, kNone);
    return {};
}

Result<void> MemoryManager::quiesce() {
    if (auto r = device_.synchronize(gpu::StreamId::copy); !r) return r;
    return device_.synchronize(gpu::StreamId::compute);
}

uint32_t MemoryManager::update_spans() {
    return experts_->set_spans(
        {low_ * granule_bytes_, top_ * granule_bytes_, (end_ - loan_) * granule_bytes_});
}

// ---- state

Result<void> MemoryManager::clear_state() {
    device_.fill(gpu::StreamId::compute, state(0), 0, model_.facts.state_bytes);
    return device_.synchronize(gpu::StreamId::compute);
}

Result<void> MemoryManager::save_state(std::vector<std::byte>& to) {
    to.resize(model_.facts.state_bytes);
    device_.copy(gpu::StreamId::compute, to.data(), state(0), to.size());
    return device_.synchronize(gpu::StreamId::compute);
}

Result<void> MemoryManager::restore_state(const std::vector<std::byte>& from) {
    device_.copy(gpu::StreamId::compute, state(0), from.data(), from.size());
    return device_.synchronize(gpu::StreamId::compute);
}

// ---- K/V

Result<KvId> MemoryManager::create_kv() {
    const KvId id = next_kv_;
    Mapped range;
    if (auto r = reserve(range, plan_.kv_at_max, "K/V " + std::to_string(id)); !r)
        return tl::unexpected(r.error());
    ++next_kv_;
    kv_.emplace(id, std::move(range));
    return id;
}

// A range of K/V is mapped from its start without a gap.
size_t MemoryManager::mapped_places(const Mapped& kv) {
    const auto end = std::partition_point(kv.granules.begin(), kv.granules.end(),
                                          [](gpu::GranuleId id) { return id != kNone; });
    return static_cast<size_t>(end - kv.granules.begin());
}

void MemoryManager::quarantine(std::span<const gpu::GranuleId> granules, const Error& cause) {
    if (granules.empty()) return;
    quarantined_.insert(quarantined_.end(), granules.begin(), granules.end());
    event(MemoryEvent::Kind::quarantined, 0, static_cast<uint32_t>(granules.size()), 0);
    if (log_)
        log_(LogLevel::error,
             plural(granules.size(), "granule") +
                 " out of use until the model is loaded again: " + cause.message());
}

uint32_t MemoryManager::map_back(std::span<const gpu::GranuleId> granules) {
    const uint32_t before = low_;
    if (map(range_, low_, granules)) {
        low_ += static_cast<uint32_t>(granules.size());
    } else {
        // One by one, so that a granule that cannot be mapped costs no other.
        for (const gpu::GranuleId& granule : granules) {
            if (auto r = map(range_, low_, {&granule, 1}); r)
                ++low_;
            else
                quarantine({&granule, 1}, r.error());
        }
    }
    update_spans();
    return low_ - before;
}

void MemoryManager::drop_kv(KvId id) {
    const auto found = kv_.find(id);
    if (found == kv_.end()) return;
    const Mapped range = std::move(found->second);
    kv_.erase(found);
    const size_t count = mapped_places(range);
    std::vector<gpu::GranuleId> granules(range.granules.begin(),
                                         range.granules.begin() + static_cast<ptrdiff_t>(count));
    // Neighbours by number are one piece to the device: in order they make the fewest.
    std::sort(granules.begin(), granules.end());
    auto freed = quiesce();
    if (freed && count > 0) freed = device_.unmap(range.id, 0, count);
    if (freed) {
        device_.release(range.id);
        // Back to experts from the low mark upwards: the reverse of how they were taken.
        const uint32_t back = map_back(granules);
        if (back > 0) event(MemoryEvent::Kind::kv_trimmed, 0, back, 0);
        if (back > 0 && log_)
            log_(LogLevel::info, "K/V trimmed: " + plural(back, "granule") +
                                     " back to experts; slots " +
                                     std::to_string(experts_->usable_slots()));
    } else {
        // Still mapped where nobody will look for them.
        quarantine(granules, freed.error());
    }
    publish(true);
}

std::byte* MemoryManager::kv_base(KvId id) const {
    return device_.base(kv_.at(id).id);
}

uint64_t MemoryManager::kv_cells(KvId id) const {
    // Without attention there is nothing to map and every cell is there.
    if (kv_layout_.step_bytes == 0) return steps_of(plan_.max_context) * gpu::kStepCells;
    return mapped_places(kv_.at(id)) * granule_bytes_ / kv_layout_.step_bytes * gpu::kStepCells;
}

uint32_t MemoryManager::kv_need(KvId id, uint64_t cells) const {
    const uint64_t mapped = mapped_places(kv_.at(id));
    const uint64_t wanted = divide_up(steps_of(cells) * kv_layout_.step_bytes, granule_bytes_);
    return wanted > mapped ? static_cast<uint32_t>(wanted - mapped) : 0;
}

uint32_t MemoryManager::kv_available() const {
    return low_ - std::min(low_, plan_.floor);
}

Result<MemoryManager::Growth> MemoryManager::grow_kv(KvId id, uint64_t cells) {
    Mapped& range = kv_.at(id);
    const uint32_t need = kv_need(id, cells);
    Growth growth;
    if (need == 0) return growth;
    if (need > kv_available()) {
        event(MemoryEvent::Kind::refused, cells, need, 0);
        return fail(ErrorKind::refused, "K/V cannot grow to " + std::to_string(cells) + " cells",
                    "it needs " + format_bytes(need * granule_bytes_) +
                        ", experts above their "
                        "floor hold " +
                        format_bytes(kv_available() * granule_bytes_),
                    "Start a new chat, lower max-context or raise vram-budget");
    }
    // Publish the removal first: no table names a slot above the new mark any more.
    const uint32_t old_low = low_;
    const auto keep_old = [&](const Error& cause) {
        low_ = old_low;
        update_spans();
        publish(true);
        return tl::unexpected(cause);
    };
    low_ -= need;
    uint32_t from_experts = 0;
    for (uint32_t place = low_; place < old_low; ++place)
        from_experts += expert_owner(place) == Owner::experts;
    growth.experts_lost = update_spans();
    growth.granules = need;
    if (auto r = quiesce(); !r) return keep_old(r.error());
    const std::vector<gpu::GranuleId> granules(range_.granules.begin() + low_,
                                               range_.granules.begin() + old_low);
    const size_t first = mapped_places(range);
    if (auto r = unmap(range_, low_, need); !r) return keep_old(r.error());
    auto moved = map(range, first, granules);
    if (moved) {
        // A granule that held weights would decode to NaN scales: cells start as zeros.
        device_.fill(gpu::StreamId::compute, device_.base(range.id) + first * granule_bytes_, 0,
                     need * granule_bytes_);
        moved = quiesce();
        if (!moved && !unmap(range, first, need)) {
            // Cells that nobody knows to be zero, and that stay: not this conversation's.
            std::fill_n(range.granules.begin() + static_cast<ptrdiff_t>(first), need, kNone);
            quarantine(granules, moved.error());
            publish(true);
            return tl::unexpected(moved.error());
        }
    }
    if (!moved) {
        map_back(granules);
        publish(true);
        return tl::unexpected(moved.error());
    }
    event(MemoryEvent::Kind::kv_grown, kv_cells(id), need, growth.experts_lost);
    if (log_)
        log_(LogLevel::info,
             "K/V grown to " + std::to_string(kv_cells(id)) + " cells (" +
                 format_bytes(need * granule_bytes_) + "): " + plural(need, "granule") + ", " +
                 std::to_string(from_experts) + " of them held by experts; " +
                 plural(growth.experts_lost, "expert") + " lost a slot; slots " +
                 std::to_string(experts_->usable_slots()) +
                 "; new driver memory: " + (driver_allocations_after_load() ? "ASKED" : "none"));
    publish(true);
    return growth;
}

// ---- loan

Result<MemoryManager::Loan> MemoryManager::take_loan(uint32_t chunk) {
    Loan loan;
    loan.layout = loan_layout(model_.facts, facts_, chunk);
    loan.granules = static_cast<uint32_t>(divide_up(loan.layout.bytes, granule_bytes_));
    if (loan.granules > plan_.loan || loan_ != 0)
        return fail(ErrorKind::internal, "the loan does not match the plan",
                    plural(loan.granules, "granule") + " wanted, " + std::to_string(plan_.loan) +
                        " planned, " + std::to_string(loan_) + " lent");
    loan_ = loan.granules;
    loan.experts_lost = update_spans();
    if (auto r = quiesce(); !r) {
        loan_ = 0;
        update_spans();
        publish(true);
        return tl::unexpected(r.error());
    }
    loan.base = device_.base(range_.id) + (end_ - loan_) * granule_bytes_;
    event(MemoryEvent::Kind::loan_taken, 0, loan_, loan.experts_lost);
    publish(true);
    return loan;
}

void MemoryManager::return_loan() {
    if (loan_ == 0) return;
    (void)quiesce();
    event(MemoryEvent::Kind::loan_returned, 0, loan_, 0);
    loan_ = 0;
    update_spans();
    publish(true);
}

// ---- figures

double MemoryManager::seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - telemetry_.opened)
        .count();
}

uint64_t MemoryManager::driver_allocations_after_load() const {
    return allocations_at_load_ ? device_.driver_allocations() - allocations_at_load_ : 0;
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
    return bytes;
}

void MemoryManager::publish(bool now) {
    const auto time = std::chrono::steady_clock::now();
    if (!now && time - last_frame_ < kFrameInterval) return;
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
        const gpu::ExpertCacheView& view = experts_->view(slot.layer);
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
    for (const GranuleWord& word : frame.words) ++frame.granules[static_cast<int>(word.owner())];

    Counters& counters = telemetry_.counters;
    uint64_t hits = 0, misses = 0, copied = 0;
    for (uint32_t n = 0; n < model_.facts.layers; ++n) {
        const gpu::ExpertCacheView& view = experts_->view(n);
        hits += *view.hits;
        misses += *view.misses;
        copied += *view.bytes_copied;
    }
    counters.expert_hits.store(hits, std::memory_order_relaxed);
    counters.expert_misses.store(misses, std::memory_order_relaxed);
    counters.bytes_copied.store(copied, std::memory_order_relaxed);
    counters.driver_allocations_after_load.store(driver_allocations_after_load(),
                                                 std::memory_order_relaxed);
    telemetry_.map.publish();
}

}  // namespace granary

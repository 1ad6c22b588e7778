// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/memory/manager.h"

#include <algorithm>
#include <numeric>

namespace granary {
namespace {

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
      granule_bytes_(plan.granule_bytes) {}

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
    auto experts = ExpertCache::create(model, device, plan.rows_at_start, device.base(m.range_.id),
                                       m.workspace() + layout.tables);
    if (!experts) return tl::unexpected(experts.error());
    m.experts_ = std::move(*experts);
    auto results =
        device.page_locked(kDecodeRows * (sizeof(int32_t) + model.facts.vocab * sizeof(float)));
    if (!results) return tl::unexpected(results.error());
    m.results_ = std::move(*results);
    m.capacity_ = total;
    m.end_ = plan.expert_range;
    m.low_ = m.top_ = m.resting_top();
    m.update_spans();

    // Fixed weights: on a card they are copied and their pointers move.
    const uint64_t fixed_bytes = plan.fixed ? model.facts.fixed_bytes : 0;
    const uint64_t bytes = fixed_bytes + m.experts_->fill_bytes();
    uint64_t done = 0;
    const auto start = std::chrono::steady_clock::now();
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
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    constexpr uint64_t kEnoughToTell = 256 << 20;
    if (bytes >= kEnoughToTell) m.load_rate_ = static_cast<double>(bytes) / took.count();
    m.end_load();
    m.publish(true);
    return manager;
}

Result<void> MemoryManager::reserve(Mapped& range, uint32_t places, std::string name) {
    auto id = noted(device_.reserve(std::max(places, 1u)));
    if (!id) return tl::unexpected(id.error());
    range.id = *id;
    range.granules.assign(places, kNone);
    range.name = std::move(name);
    return {};
}

Result<void> MemoryManager::map(Mapped& range, size_t first,
                                std::span<const gpu::GranuleId> granules) {
    if (granules.empty()) return {};
    if (auto r = noted(device_.map(range.id, first, granules)); !r) return r;
    std::copy(granules.begin(), granules.end(), range.granules.begin() + first);
    return {};
}

Result<void> MemoryManager::unmap(Mapped& range, size_t first, size_t count) {
    if (count == 0) return {};
    if (auto r = noted(device_.unmap(range.id, first, count)); !r) return r;
    std::fill_n(range.granules.begin() + first, count, kNone);
    return {};
}

Result<void> MemoryManager::quiesce() {
    if (auto r = wait_for(gpu::StreamId::copy); !r) return r;
    return sync_tables();
}

Result<void> MemoryManager::sync_tables() {
    if (!experts_) return settle();
    if (tables_lost_)
        experts_->publish();
    else
        experts_->read_back();
    auto done = settle();
    if (!done) return done;
    experts_->note_completeness();
    tables_lost_ = false;
    return done;
}

Result<void> MemoryManager::settle() {
    return wait_for(gpu::StreamId::compute);
}

Result<void> MemoryManager::wait_for(gpu::StreamId stream) {
    auto done = noted(device_.synchronize(stream));
    if (!done && experts_) {
        // Tables that were not read back or came in part, and moves that may have stopped half-way,
        // are not to be trusted: the cache begins anew, and nothing runs before the device knows.
        experts_->forget();
        tables_lost_ = true;
    }
    return done;
}

uint32_t MemoryManager::update_spans() {
    return experts_->set_spans(
        {low_ * granule_bytes_, top_ * granule_bytes_, (end_ - loan_) * granule_bytes_});
}

// ---- state

Result<void> MemoryManager::clear_state() {
    device_.fill(gpu::StreamId::compute, state(0), 0, model_.facts.state_bytes);
    return noted(device_.synchronize(gpu::StreamId::compute));
}

Result<void> MemoryManager::save_state(std::byte* to) {
    device_.copy(gpu::StreamId::compute, to, state(0), model_.facts.state_bytes);
    return noted(device_.synchronize(gpu::StreamId::compute));
}

Result<void> MemoryManager::restore_state(const std::byte* from) {
    device_.copy(gpu::StreamId::compute, state(0), from, model_.facts.state_bytes);
    return noted(device_.synchronize(gpu::StreamId::compute));
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

uint32_t MemoryManager::fill_gap(std::span<const gpu::GranuleId> granules, uint32_t& mark,
                                 bool downward, Error& cause) {
    const auto count = static_cast<uint32_t>(granules.size());
    if (map(range_, downward ? mark - count : mark, granules)) {
        mark = downward ? mark - count : mark + count;
        return count;
    }
    // One by one, so that a granule that cannot be mapped costs no other. A device that is lost
    // need not be asked again.
    std::vector<gpu::GranuleId> failed;
    for (uint32_t i = 0; i < count; ++i) {
        const size_t at = downward ? count - 1 - i : i;
        if (failed.empty() || cause.kind != ErrorKind::device_lost) {
            if (auto r = map(range_, downward ? mark - 1 : mark, granules.subspan(at, 1)); r) {
                mark = downward ? mark - 1 : mark + 1;
                continue;
            } else {
                cause = r.error();
            }
        }
        failed.push_back(granules[at]);
    }
    quarantine(failed, cause);
    return count - static_cast<uint32_t>(failed.size());
}

uint32_t MemoryManager::give(std::vector<gpu::GranuleId> granules, uint32_t lowest_top,
                             Error* cause) {
    // Neighbours by number are one piece to the device: in order they make the fewest.
    std::sort(granules.begin(), granules.end());
    const std::span<const gpu::GranuleId> all(granules);
    const size_t above = std::min<size_t>(all.size(), top_ - std::min(top_, lowest_top));
    Error failure;
    uint32_t back = fill_gap(all.last(above), top_, true, failure);
    back += fill_gap(all.first(all.size() - above), low_, false, failure);
    if (cause) *cause = failure;
    (void)settle();  // tables of this change may still be on their way to the device
    update_spans();
    return back;
}

Result<std::vector<gpu::GranuleId>> MemoryManager::take(uint32_t count, Growth& growth) {
    if (auto r = quiesce(); !r) return tl::unexpected(r.error());
    const uint32_t old_low = low_, old_top = top_;
    const uint32_t below = std::min(count, low_ - std::min(low_, plan_.floor));
    for (uint32_t place = low_ - below; place < low_; ++place)
        ++(expert_owner(place) == Owner::experts ? growth.from_experts : growth.from_spare);
    growth.granules = count;
    growth.from_loan = count - below;
    // The removal: no table names a slot between the new marks any more.
    low_ -= below;
    top_ += count - below;
    growth.experts_lost = update_spans();
    const auto keep = [&](const Error& cause) {
        low_ = old_low;
        top_ = old_top;
        (void)settle();
        update_spans();
        publish(true);
        return tl::unexpected(cause);
    };
    if (auto r = settle(); !r) return keep(r.error());
    std::vector<gpu::GranuleId> taken(range_.granules.begin() + low_,
                                      range_.granules.begin() + old_low);
    taken.insert(taken.end(), range_.granules.begin() + old_top, range_.granules.begin() + top_);
    if (auto r = unmap(range_, low_, below); !r) return keep(r.error());
    if (auto r = unmap(range_, old_top, count - below); !r) {
        top_ = old_top;
        taken.resize(below);
        give(std::move(taken), old_top);
        publish(true);
        return tl::unexpected(r.error());
    }
    return taken;
}

Result<void> MemoryManager::slide(uint32_t count) {
    while (count > 0) {
        const uint32_t gap = top_ - low_;
        if (gap == 0) {  // the marks meet: nothing is mapped or unmapped
            low_ -= count;
            top_ -= count;
            break;
        }
        const uint32_t part = std::min(count, gap);
        const uint32_t old_low = low_, old_top = top_;
        low_ -= part;
        update_spans();
        const std::vector<gpu::GranuleId> moved(range_.granules.begin() + low_,
                                                range_.granules.begin() + old_low);
        auto done = settle();
        if (done) done = unmap(range_, low_, part);
        if (!done) {
            low_ = old_low;
            (void)settle();
            update_spans();
            return done;
        }
        if (Error cause; give(moved, old_top - part, &cause) < part) return tl::unexpected(cause);
        count -= part;
    }
    return settle();
}

void MemoryManager::drop_kv(KvId id) {
    const auto found = kv_.find(id);
    if (found == kv_.end()) return;
    trim_kv(id, 0);
    const Mapped range = std::move(found->second);
    kv_.erase(found);
    const size_t left = mapped_places(range);
    if (left == 0) {
        device_.release(range.id);
    } else {
        // Still mapped where nobody will look for them.
        quarantine({range.granules.data(), left},
                   {ErrorKind::device, "the device did not give them back", {}, {}});
    }
    publish(true);
}

uint32_t MemoryManager::trim_kv(KvId id, uint64_t cells) {
    Mapped& range = kv_.at(id);
    const size_t mapped = mapped_places(range);
    const size_t keep = divide_up(steps_of(cells) * kv_layout_.step_bytes, granule_bytes_);
    if (keep >= mapped) return 0;
    std::vector<gpu::GranuleId> granules(range.granules.begin() + static_cast<ptrdiff_t>(keep),
                                         range.granules.begin() + static_cast<ptrdiff_t>(mapped));
    auto freed = quiesce();
    if (freed) freed = unmap(range, keep, mapped - keep);
    if (!freed) {
        if (log_) log_(LogLevel::warning, "K/V not trimmed: " + freed.error().message());
        return 0;
    }
    range.zeroed = std::min(range.zeroed, keep);
    const uint32_t back = give(std::move(granules), resting_top());
    event(MemoryEvent::Kind::kv_trimmed, kv_cells(id), back, 0);
    log_change("K/V trimmed to " + std::to_string(kv_cells(id)) +
               " cells: " + plural(back, "granule") + " (" + format_bytes(back * granule_bytes_) +
               ") back to experts");
    publish(true);
    return back;
}

std::byte* MemoryManager::kv_base(KvId id) const {
    return device_.base(kv_.at(id).id);
}

uint64_t MemoryManager::kv_cells(KvId id) const {
    // Without attention there is nothing to map and every cell is there.
    if (kv_layout_.step_bytes == 0) return steps_of(plan_.max_context) * gpu::kStepCells;
    return kv_.at(id).zeroed * granule_bytes_ / kv_layout_.step_bytes * gpu::kStepCells;
}

uint32_t MemoryManager::kv_need(KvId id, uint64_t cells) const {
    const uint64_t mapped = mapped_places(kv_.at(id));
    const uint64_t wanted = divide_up(steps_of(cells) * kv_layout_.step_bytes, granule_bytes_);
    return wanted > mapped ? static_cast<uint32_t>(wanted - mapped) : 0;
}

uint32_t MemoryManager::kv_available() const {
    const uint32_t kept = std::max(loan_, plan_.smallest_loan);
    return lendable() - std::min(lendable(), kept);
}

Result<MemoryManager::Growth> MemoryManager::grow_kv(KvId id, uint64_t cells) {
    Mapped& range = kv_.at(id);
    const uint32_t need = kv_need(id, cells);
    Growth growth;
    if (need == 0 && kv_cells(id) >= cells) {
        if (tables_lost_)
            if (auto r = quiesce(); !r) return tl::unexpected(r.error());
        return growth;
    }
    if (need > kv_available()) {
        event(MemoryEvent::Kind::refused, cells, need, 0);
        const Error refusal{
            ErrorKind::refused, "K/V cannot grow to " + std::to_string(cells) + " cells",
            "it needs " + format_bytes(need * granule_bytes_) +
                ", experts above their floor and the loan above its smallest chunk hold " +
                format_bytes(kv_available() * granule_bytes_),
            "Start a new chat, lower max-context or raise vram-budget"};
        log_change("refused: " + refusal.message());
        return tl::unexpected(refusal);
    }
    auto granules = take(need, growth);
    if (!granules) return tl::unexpected(granules.error());
    const size_t first = mapped_places(range);
    if (auto r = map(range, first, *granules); !r) {
        give(std::move(*granules), resting_top());
        publish(true);
        return tl::unexpected(r.error());
    }
    // A granule that held weights would decode to NaN scales: cells start as zeros. Where this
    // fails, the granules stay with the conversation, and its next growth zeroes them.
    const size_t end = first + need;
    device_.fill(gpu::StreamId::compute, device_.base(range.id) + range.zeroed * granule_bytes_, 0,
                 (end - range.zeroed) * granule_bytes_);
    if (auto r = settle(); !r) {
        publish(true);
        return tl::unexpected(r.error());
    }
    range.zeroed = end;
    event(MemoryEvent::Kind::kv_grown, kv_cells(id), need, growth.experts_lost);
    log_change("K/V grown to " + std::to_string(kv_cells(id)) + " cells (" +
               format_bytes(need * granule_bytes_) + "): " + plural(need, "granule") + ": " +
               std::to_string(growth.from_spare) + " spare, " +
               std::to_string(growth.from_experts) + " from cold experts, " +
               std::to_string(growth.from_loan) + " from the loan's place; " +
               plural(growth.experts_lost, "expert") + " lost a slot");
    publish(true);
    return growth;
}

// ---- loan

Standing MemoryManager::standing(KvId id) const {
    Standing standing;
    standing.away = static_cast<uint32_t>(quarantined_.size());
    for (const auto& [other, range] : kv_)
        (other == id ? standing.mapped : standing.idle) +=
            static_cast<uint32_t>(mapped_places(range));
    return standing;
}

MemoryManager::Loan MemoryManager::loan_of(uint32_t chunk) const {
    Loan loan;
    loan.chunk = chunk;
    loan.layout = loan_layout(model_.facts, facts_, chunk);
    loan.granules = static_cast<uint32_t>(divide_up(loan.layout.bytes, granule_bytes_));
    loan.base = device_.base(range_.id) + end_ * granule_bytes_ - loan.layout.bytes;
    return loan;
}

Result<MemoryManager::Loan> MemoryManager::take_loan(uint32_t chunk) {
    Loan loan = loan_of(chunk);
    if (loan_ != 0 || loan.granules > lendable())
        return fail(ErrorKind::internal, "the loan does not match the plan",
                    plural(loan.granules, "granule") + " wanted, " + std::to_string(lendable()) +
                        " can be lent, " + std::to_string(loan_) + " are lent");
    if (auto r = quiesce(); !r) return tl::unexpected(r.error());
    if (loan.granules > end_ - top_) {
        if (auto r = slide(loan.granules - (end_ - top_)); !r) {
            publish(true);
            return tl::unexpected(r.error());
        }
    }
    loan_ = loan.granules;
    loan.experts_lost = update_spans();
    if (auto r = settle(); !r) {
        loan_ = 0;
        (void)settle();
        update_spans();
        publish(true);
        return tl::unexpected(r.error());
    }
    event(MemoryEvent::Kind::loan_taken, 0, loan_, loan.experts_lost);
    publish(true);
    return loan;
}

Result<MemoryManager::Loan> MemoryManager::shrink_loan(const Loan& loan, uint32_t chunk) {
    Loan smaller = loan_of(chunk);
    if (smaller.granules > loan_)
        return fail(
            ErrorKind::internal, "a loan cannot grow",
            plural(loan_, "granule") + " lent, " + std::to_string(smaller.granules) + " wanted");
    if (auto r = quiesce(); !r) return tl::unexpected(r.error());
    const uint32_t freed = loan_ - smaller.granules;
    loan_ = smaller.granules;
    update_spans();
    event(MemoryEvent::Kind::loan_shrunk, 0, freed, 0);
    log_change("loan shrunk from " + std::to_string(loan.chunk) + " to " + std::to_string(chunk) +
               " tokens: " + plural(freed, "granule") + " (" +
               format_bytes(freed * granule_bytes_) + ") for K/V");
    publish(true);
    return smaller;
}

void MemoryManager::return_loan() {
    if (loan_ == 0) return;
    (void)quiesce();
    event(MemoryEvent::Kind::loan_returned, 0, loan_, 0);
    loan_ = 0;
    update_spans();
    resident_ = experts_->resident();
    publish(true);
}

void MemoryManager::note_refill() {
    publish(true, Compute::idle);
    const uint32_t now = experts_->resident();
    if (now <= resident_) return;
    event(MemoryEvent::Kind::experts_filled, 0, 0, now - resident_);
    log_change("experts refilled: " + plural(now - resident_, "slot") +
               " by misses of the answer, " + std::to_string(now) + " filled");
    resident_ = now;
}

// ---- budget

Result<void> MemoryManager::set_budget(const Plan& plan) {
    const uint32_t held = granules();
    const auto wanted = static_cast<uint32_t>(plan.budget_bytes / granule_bytes_);
    if (loan_ != 0 || wanted > capacity_ || plan.granule_bytes != granule_bytes_)
        return fail(ErrorKind::internal, "this budget needs a new layout",
                    plural(wanted, "granule") + " of " + std::to_string(capacity_));
    if (auto r = quiesce(); !r) return r;
    if (wanted < held) {
        const uint32_t count = held - wanted;
        if (count > kv_available())
            return fail(ErrorKind::refused, "the budget cannot be that small now",
                        format_bytes(count * granule_bytes_) + " would have to go, " +
                            format_bytes(kv_available() * granule_bytes_) +
                            " are not in the hands of K/V, floor and smallest loan",
                        "Close chats or keep a larger vram-budget");
        Growth growth;
        auto granules = take(count, growth);
        if (!granules) return tl::unexpected(granules.error());
        if (auto r = noted(device_.release_granules(*granules)); !r) {
            // Some may be with the driver all the same.
            const auto gone =
                std::stable_partition(granules->begin(), granules->end(),
                                      [&](gpu::GranuleId id) { return device_.held(id); });
            quarantine({gone, granules->end()}, r.error());
            granules->erase(gone, granules->end());
            give(std::move(*granules), resting_top());
            publish(true);
            return r;
        }
        released_.insert(released_.end(), granules->begin(), granules->end());
    } else if (wanted > held) {
        const auto first = released_.end() - (wanted - held);
        std::vector<gpu::GranuleId> granules(first, released_.end());
        const uint64_t before = device_.driver_allocations();
        const auto recreated = noted(device_.recreate_granules(granules));
        allocations_at_load_ += device_.driver_allocations() - before;  // a load point
        if (!recreated) return recreated;
        released_.erase(first, released_.end());
        plan_.loan = plan.loan;
        give(std::move(granules), resting_top());
    }
    plan_ = plan;
    event(MemoryEvent::Kind::budget_changed, 0, wanted > held ? wanted - held : held - wanted, 0);
    log_change("budget " + std::string(wanted < held ? "lowered" : "raised") + " from " +
               format_bytes(held * granule_bytes_) + " to " + format_bytes(plan.budget_bytes));
    publish(true);
    return {};
}

}  // namespace granary

// SPDX-License-Identifier: GPL-3.0-or-later
// The owner of every granule. It carries out a plan: fixed weights, workspace, the state of the
// running conversation, and one expert range of which K/V, loan and a lowered budget take their
// share.
//
//   expert range   0 ........ low ............ top ............... end
//                  experts    given away       loan while a prompt runs, else experts
//
// What is taken comes from below first: low falls to the floor, then top rises, at most to the
// end less the smallest loan. What comes back goes the other way. Every change is a transaction:
// plan, quiesce, publish the removal, unmap and map, fill, publish. One that fails leaves marks,
// ranges and sums that agree; granules that could not be put back are quarantined.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/experts/expert_cache.h"
#include "engine/kv/kv_layout.h"
#include "engine/memory/layout.h"
#include "engine/model/model.h"
#include "gpu/device.h"
#include "granary/engine.h"

namespace granary {

using KvId = uint32_t;

class MemoryManager {
  public:
    // The load point: reserves, creates every granule of the budget, maps and fills. Moves the
    // pointers of `model`'s fixed weights onto the card. After it the driver is asked for nothing.
    static Result<std::unique_ptr<MemoryManager>> create(gpu::Device& device, Model& model,
                                                         const Plan& plan, const DeviceFacts& facts,
                                                         Telemetry& telemetry, LogFunction log,
                                                         const LoadProgress& progress);
    ~MemoryManager();
    // What else is made at the load point has been made: from now on the driver is asked for
    // nothing. create() ends so, too.
    void end_load() { allocations_at_load_ = device_.driver_allocations(); }

    // Bytes a second that came over the link at the load; 0: too few to tell.
    double load_rate() const { return load_rate_; }

    std::byte* workspace() const { return device_.base(workspace_.id); }
    // Page-locked host memory for int32 [kDecodeRows] and f32 [kDecodeRows, vocab].
    std::byte* results() const { return results_.data.get(); }
    ExpertCache& experts() { return *experts_; }
    const KvLayout& kv() const { return kv_layout_; }

    // ---- state: what delta nets remember of the conversation that runs ----------------------
    // Tail, then state, f32, of the delta net `number`.
    std::byte* state(uint32_t number) const {
        return device_.base(state_.id) + number * delta_place_bytes(model_.facts.delta);
    }
    Result<void> clear_state();
    // To and from facts.state_bytes of host memory.
    Result<void> save_state(std::byte* to);
    Result<void> restore_state(const std::byte* from);

    // ---- K/V: one range per conversation ---------------------------------------------------
    Result<KvId> create_kv();
    // Its granules go back to experts; what the device does not give back is quarantined.
    void drop_kv(KvId id);
    std::byte* kv_base(KvId id) const;
    uint64_t kv_cells(KvId id) const;  // that can be used
    // Granules that `cells` cells of `id` still need, and those that K/V may still take.
    uint32_t kv_need(KvId id, uint64_t cells) const;
    uint32_t kv_available() const;
    // Where the granules of a change came from. Those of the loan: top rose.
    struct Growth {
        uint32_t granules = 0;
        uint32_t from_spare = 0, from_experts = 0, from_loan = 0;
        uint32_t experts_lost = 0;
    };
    // Maps and zeroes whole steps until `cells` cells are there. Errors: `refused` with numbers
    // where experts are at their floor and the loan is as small as it gets; `device` after which
    // the next call may succeed.
    Result<Growth> grow_kv(KvId id, uint64_t cells);
    // Unmaps the steps behind the first `cells` cells. What the device does not unmap stays.
    // Returns how many granules went back.
    uint32_t trim_kv(KvId id, uint64_t cells);

    // ---- loan --------------------------------------------------------------------------------
    struct Loan {
        std::byte* base = nullptr;
        LoanLayout layout;
        uint32_t chunk = 0;
        uint32_t granules = 0;
        uint32_t experts_lost = 0;
    };
    // Granules that a loan may take now.
    uint32_t lendable() const { return end_ - top_ + (low_ - std::min(low_, plan_.floor)); }
    // Lays the buffers of a chunk over the end of the expert range. Errors: `internal` where a
    // schedule for what `standing()` says would not have asked; `device`.
    Result<Loan> take_loan(uint32_t chunk);
    // Lays the buffers of a smaller chunk; all but the ring move, so what they held is gone. The
    // granules that become free are K/V's to take. At a chunk boundary only.
    Result<Loan> shrink_loan(const Loan& loan, uint32_t chunk);
    void return_loan();
    // After an answer: says how many slots its misses have filled since the loan came back.
    void note_refill();
    // What a prompt's schedule must know of the moment: granules given away, less those of `id`.
    Standing standing(KvId id) const;

    // ---- budget ------------------------------------------------------------------------------
    // The most granules that this pool can have without being laid anew.
    uint32_t capacity() const { return capacity_; }
    uint32_t granules() const {  // of the budget now
        return capacity_ - static_cast<uint32_t>(released_.size());
    }
    // Gives granules back to the driver, or asks for them again, until the pool has as many as
    // `plan` says; plan differs from the one that runs in budget and loan only. A raised budget is
    // a load point. Between prompts. Errors: `refused` where K/V holds what would have to go;
    // `device`, after which the old budget stands.
    Result<void> set_budget(const Plan& plan);

    // ---- figures -----------------------------------------------------------------------------
    std::array<uint64_t, kOwners> bytes() const;  // by class; sums to the budget
    uint64_t driver_allocations_after_load() const;
    // Publishes a map frame; at most every 16 ms unless `now`. With the compute stream idle it
    // shows the expert tables as they are, else as they were last read.
    enum class Compute : uint8_t { busy, idle };
    void publish(bool now = false, Compute compute = Compute::busy);
    double seconds() const;  // since the engine was opened
    // Why nothing works any more: what a device call that found the device lost said, also where
    // the function that made the call returns no error.
    const std::optional<Error>& lost() const { return lost_; }

  private:
    struct Mapped {  // a range and what is behind its places
        gpu::RangeId id = 0;
        std::vector<gpu::GranuleId> granules;  // [places]; kNone where unmapped
        size_t zeroed = 0;                     // of K/V: places from the start that hold cells
        std::string name;
    };
    static constexpr gpu::GranuleId kNone = UINT32_MAX;

    MemoryManager(gpu::Device& device, const Model& model, const Plan& plan,
                  const DeviceFacts& facts, Telemetry& telemetry, LogFunction log);
    // What each device call says passes through here.
    template <class T>
    Result<T> noted(Result<T> result) {
        if (!result && result.error().kind == ErrorKind::device_lost && !lost_)
            lost_ = result.error();
        return result;
    }
    Result<void> reserve(Mapped& range, uint32_t places, std::string name);
    Result<void> map(Mapped& range, size_t first, std::span<const gpu::GranuleId> granules);
    Result<void> unmap(Mapped& range, size_t first, size_t count);
    static size_t mapped_places(const Mapped& kv);
    void quarantine(std::span<const gpu::GranuleId> granules, const Error& cause);
    // Takes `count` granules out of the expert range: moves the marks, publishes, quiesces and
    // unmaps. `growth` learns where they came from. Errors: as grow_kv; nothing is taken then.
    Result<std::vector<gpu::GranuleId>> take(uint32_t count, Growth& growth);
    // Puts granules that were taken back into the expert range: top falls, at most to
    // `lowest_top`, then low rises. Those that cannot be mapped are quarantined, and `cause` says
    // why. Returns how many came back.
    uint32_t give(std::vector<gpu::GranuleId> granules, uint32_t lowest_top,
                  Error* cause = nullptr);
    // The part of it that moves one mark.
    uint32_t fill_gap(std::span<const gpu::GranuleId> granules, uint32_t& mark, bool downward,
                      Error& cause);
    // Moves the gap down by `count` places.
    Result<void> slide(uint32_t count);
    // Where top is while K/V leaves experts above their floor.
    uint32_t resting_top() const { return end_ - std::min(end_, plan_.loan); }
    void log_change(const std::string& what) const;
    uint32_t update_spans();
    // No stream works any more, and the host knows the expert tables: where a change begins.
    Result<void> quiesce();
    // Its second half: the compute stream rests.
    Result<void> sync_tables();
    // What a change has put on the compute stream is done.
    Result<void> settle();
    Result<void> wait_for(gpu::StreamId stream);
    Loan loan_of(uint32_t chunk) const;
    void event(MemoryEvent::Kind kind, uint64_t cells, uint32_t granules, uint32_t experts);
    std::vector<Owner> owners() const;
    Owner expert_owner(uint32_t place) const;

    gpu::Device& device_;
    const Model& model_;
    Plan plan_;
    const DeviceFacts facts_;
    Telemetry& telemetry_;
    LogFunction log_;
    KvLayout kv_layout_;
    uint64_t granule_bytes_;

    Mapped fixed_, workspace_, state_, range_;
    std::map<KvId, Mapped> kv_;
    KvId next_kv_ = 1;
    std::unique_ptr<ExpertCache> experts_;
    bool tables_lost_ = false;  // the device's may be wrong: publish before anything runs
    gpu::HostBuffer results_;
    uint32_t low_ = 0, top_ = 0, end_ = 0;  // places of the expert range
    uint32_t loan_ = 0;                     // places lent now
    uint32_t resident_ = 0;                 // experts with a slot when the loan came back
    uint32_t capacity_ = 0;                 // granules of the whole pool at its load
    std::vector<gpu::GranuleId> quarantined_;
    std::vector<gpu::GranuleId> released_;  // to the driver, while the budget is lowered
    double load_rate_ = 0;
    uint64_t allocations_at_load_ = 0;
    std::optional<Error> lost_;
    std::chrono::steady_clock::time_point last_frame_{};  // long ago: the first frame is due
};

}  // namespace granary

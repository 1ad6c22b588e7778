// SPDX-License-Identifier: GPL-3.0-or-later
// The owner of every granule. It carries out a plan: fixed weights, workspace, the state of the
// running conversation, and one expert range of which K/V and loan take their share.
//
//   expert range   0 ........ low ............ top ............... end
//                  experts    given to K/V     loan while a prompt runs, else experts
//
// Every change is a transaction: plan, quiesce, publish the removal, unmap and map, fill, publish.
#pragma once

#include <chrono>
#include <map>
#include <memory>
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

    std::byte* workspace() const { return device_.base(workspace_.id); }
    ExpertCache& experts() { return *experts_; }
    const KvLayout& kv() const { return kv_layout_; }

    // ---- state: what delta nets remember of the conversation that runs ----------------------
    // Tail, then state, f32, of the delta net `number`.
    std::byte* state(uint32_t number) const {
        return device_.base(state_.id) + number * delta_place_bytes(model_.facts.delta);
    }
    Result<void> clear_state();
    Result<void> save_state(std::vector<std::byte>& to);
    Result<void> restore_state(const std::vector<std::byte>& from);

    // ---- K/V: one range per conversation ---------------------------------------------------
    Result<KvId> create_kv();
    // Its granules go back to experts; what the device does not give back is quarantined.
    void drop_kv(KvId id);
    std::byte* kv_base(KvId id) const;
    uint64_t kv_cells(KvId id) const;  // that are mapped
    // Granules that `cells` cells of `id` still need, and those that K/V may still take.
    uint32_t kv_need(KvId id, uint64_t cells) const;
    uint32_t kv_available() const;
    // Maps and zeroes whole steps until `cells` cells are there. Errors: `refused` with numbers
    // where experts are at their floor; `device` after which marks, ranges and sums agree again,
    // granules that could not be put back are quarantined, and the next call may succeed.
    struct Growth {
        uint32_t granules = 0;
        uint32_t experts_lost = 0;
    };
    Result<Growth> grow_kv(KvId id, uint64_t cells);

    // ---- loan --------------------------------------------------------------------------------
    struct Loan {
        std::byte* base = nullptr;
        LoanLayout layout;
        uint32_t granules = 0;
        uint32_t experts_lost = 0;
    };
    // Lays the buffers of a chunk over the end of the expert range. chunk <= plan.chunk.
    Result<Loan> take_loan(uint32_t chunk);
    void return_loan();

    // ---- figures -----------------------------------------------------------------------------
    std::array<uint64_t, kOwners> bytes() const;  // by class; sums to the budget
    uint64_t driver_allocations_after_load() const;
    // Publishes a map frame; at most every 16 ms unless `now`.
    void publish(bool now = false);
    double seconds() const;  // since the engine was opened

  private:
    struct Mapped {  // a range and what is behind its places
        gpu::RangeId id = 0;
        std::vector<gpu::GranuleId> granules;  // [places]; kNone where unmapped
        std::string name;
    };
    static constexpr gpu::GranuleId kNone = UINT32_MAX;

    MemoryManager(gpu::Device& device, const Model& model, const Plan& plan,
                  const DeviceFacts& facts, Telemetry& telemetry, LogFunction log);
    Result<void> reserve(Mapped& range, uint32_t places, std::string name);
    Result<void> map(Mapped& range, size_t first, std::span<const gpu::GranuleId> granules);
    Result<void> unmap(Mapped& range, size_t first, size_t count);
    static size_t mapped_places(const Mapped& kv);
    void quarantine(std::span<const gpu::GranuleId> granules, const Error& cause);
    // Maps granules from the low mark upwards and moves it; those that cannot be mapped are
    // quarantined. Returns how many came back.
    uint32_t map_back(std::span<const gpu::GranuleId> granules);
    uint32_t update_spans();
    Result<void> quiesce();
    void event(MemoryEvent::Kind kind, uint64_t cells, uint32_t granules, uint32_t experts);
    std::vector<Owner> owners() const;
    Owner expert_owner(uint32_t place) const;

    gpu::Device& device_;
    const Model& model_;
    const Plan plan_;
    const DeviceFacts facts_;
    Telemetry& telemetry_;
    LogFunction log_;
    KvLayout kv_layout_;
    uint64_t granule_bytes_;

    Mapped fixed_, workspace_, state_, range_;
    std::map<KvId, Mapped> kv_;
    KvId next_kv_ = 1;
    std::unique_ptr<ExpertCache> experts_;
    uint32_t low_ = 0, top_ = 0, end_ = 0;  // places of the expert range
    uint32_t loan_ = 0;                     // places lent now
    std::vector<gpu::GranuleId> quarantined_;
    uint64_t allocations_at_load_ = 0;
    std::chrono::steady_clock::time_point last_frame_;
};

}  // namespace granary

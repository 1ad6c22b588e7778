// SPDX-License-Identifier: GPL-3.0-or-later
// A memory manager on a watched device, and what must hold of the two at any time.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "engine/memory/manager.h"
#include "tests/memory/watched_device.h"

namespace granary::test {

class Pool {
  public:
    // `settings` name the budget and the size of granules; the plan must be admitted.
    Pool(Model given, const DeviceFacts& device_facts, const Settings& settings,
         std::unique_ptr<gpu::Device> below);
    Result<void> create();
    Result<Plan> plan_for(uint64_t budget, uint32_t prefill) const;

    // Whatever happened before: every granule has one owner, the sums match the budget, tables of
    // manager, telemetry and device agree, a slot is usable where its memory is, and every resident
    // expert of `layers` layers from `first_layer` on reads as the file has it.
    void check(uint32_t first_layer = 0, uint32_t layers = UINT32_MAX);
    // The same after a failure, of which the device's tables may not know yet.
    void check_after_failure();
    void check_books();  // the same, where nothing can be read any more
    // Bytes of expert granules in which no usable slot lies, the part behind the last row left out.
    uint64_t idle_expert_bytes() const;
    uint64_t expert_bytes() const;
    // The places of the expert range between which nothing is mapped; equal: all is.
    std::pair<uint32_t, uint32_t> marks() const;
    uint32_t owned(Owner owner) const {
        return static_cast<uint32_t>(memory->bytes()[static_cast<int>(owner)] / plan.granule_bytes);
    }

    // ---- what K/V holds, stamped at the beginning of each granule
    void stamp(KvId kv, size_t first_place, size_t places);
    void restamp(KvId kv);  // by the compute stream, which is not waited for
    void check_stamps(KvId kv) const;
    size_t mapped(KvId kv) const;

    // The device's work in decode: `expert` is used, and if it has no slot it gets its layer's
    // coldest one.
    void use_expert(uint32_t layer, uint32_t expert, uint32_t tick);

    Model model;
    DeviceFacts facts;
    Plan plan;  // that runs
    Telemetry telemetry;
    std::unique_ptr<WatchedDevice> device;
    std::vector<std::string> log;
    std::unique_ptr<MemoryManager> memory;
    std::map<KvId, std::vector<uint64_t>> stamps;  // of every live conversation
    bool has_content = true;                       // else only tables can be compared

  private:
    void check_owners();
    void check_frame();
    void check_slots(uint32_t first_layer, uint32_t layers);
    const std::byte* experts_base() const;

    uint64_t next_stamp_ = 1, checks_ = 0;
    std::vector<Owner> owners_;    // [granules] as the device's tables have it
    std::vector<uint8_t> usable_;  // [places of the expert range]
};

}  // namespace granary::test

// SPDX-License-Identifier: GPL-3.0-or-later
// What the engine shows of its memory. The engine publishes and never waits; one reader takes
// frames at its own pace and may miss some.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace granary {

// Who holds a granule. The sums over classes equal the budget.
enum class Owner : uint8_t { spare, fixed, workspace, state, kv, loan, experts, quarantined };
inline constexpr int kOwners = 8;
std::string_view owner_name(Owner owner);  // "spare", "fixed", ...

// One 64-bit word per granule: class 4 bits, flags 8, owner id 24, hits (log2) 6, last use 22.
// The owner id of experts is layer * experts + expert of the first slot it touches; of K/V the
// step; elsewhere 0.
struct GranuleWord {
    uint64_t bits = 0;
    // given_back: to the driver while the budget is lowered; spare, and in no sum.
    enum Flag : uint8_t { in_transfer = 1, empty_slot = 2, given_back = 4 };

    static GranuleWord make(Owner owner, uint8_t flags, uint32_t id, unsigned hits_log2,
                            uint32_t last_use) {
        return {static_cast<uint64_t>(owner) | static_cast<uint64_t>(flags) << 4 |
                static_cast<uint64_t>(id & 0xffffff) << 12 |
                static_cast<uint64_t>(hits_log2 & 63) << 36 |
                static_cast<uint64_t>(last_use & 0x3fffff) << 42};
    }
    Owner owner() const { return static_cast<Owner>(bits & 15); }
    uint8_t flags() const { return static_cast<uint8_t>(bits >> 4); }
    uint32_t id() const { return static_cast<uint32_t>(bits >> 12) & 0xffffff; }
    unsigned hits_log2() const { return static_cast<unsigned>(bits >> 36) & 63; }
    uint32_t last_use() const { return static_cast<uint32_t>(bits >> 42); }
    bool in_budget() const { return !(flags() & given_back); }  // counts in its class's sum
    bool operator==(const GranuleWord&) const = default;
};

// Where a granule is mapped: index into MapFrame::ranges and place in that range.
struct Place {
    static constexpr uint16_t kNowhere = 0xffff;
    uint16_t range = kNowhere;
    uint32_t place = 0;
    bool operator==(const Place&) const = default;
};

struct RangeInfo {
    std::string name;  // "fixed", "experts", "K/V 1"
    uint32_t places = 0;
    bool operator==(const RangeInfo&) const = default;
};

struct MapFrame {
    uint64_t sequence = 0;  // set by publish(), from 1 on; 0: nothing published yet
    double seconds = 0;     // since the engine was opened
    uint64_t granule_bytes = 0;
    std::vector<GranuleWord> words;  // [granules], by creation index
    std::vector<Place> places;       // [granules]
    std::vector<RangeInfo> ranges;
    std::array<uint32_t, kOwners> granules{};  // sums of words per class
    // Names for hover: experts per layer, to split an expert's owner id.
    uint32_t experts_per_layer = 0;
};

// Events feed the log, the map's replay and the time plot.
struct MemoryEvent {
    enum class Kind : uint8_t {
        kv_grown, kv_trimmed, loan_taken, loan_shrunk, loan_returned, experts_evicted, experts_filled,
        refused, quarantined, budget_changed
    } kind = Kind::kv_grown;
    double seconds = 0;
    uint64_t cells = 0;      // K/V cells
    uint32_t granules = 0;   // that changed hands
    uint32_t experts = 0;    // slots lost or filled
    uint32_t slots_left = 0;
};

// Figures of the moment, each a relaxed atomic.
struct Counters {
    std::atomic<uint64_t> tokens_read{0}, tokens_answered{0};
    std::atomic<uint64_t> prompt_done{0}, prompt_total{0};  // of the running prompt, in tokens
    std::atomic<uint64_t> context_used{0}, context_max{0};  // of the running conversation
    std::atomic<uint64_t> expert_hits{0}, expert_misses{0}, bytes_copied{0};
    std::atomic<uint64_t> driver_allocations_after_load{0};
    std::atomic<uint64_t> events_dropped{0};
};

// Three frames: one being written, one ready, one being read. No lock, no torn frame. A frame
// comes back to the writer with old content, so that its vectors keep their memory: assign all.
class MapChannel {
  public:
    MapChannel();
    ~MapChannel();
    MapFrame& back();      // the writer's own frame, to fill
    void publish();        // hands it over; the writer goes on with another
    const MapFrame* take();  // reader: the newest frame if there is one not yet seen, else null
    const MapFrame& front() const;  // reader: the frame taken last

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// Single producer, single consumer. A full ring drops the event and push() says false: the
// producer counts it in Counters::events_dropped.
class EventRing {
  public:
    explicit EventRing(size_t capacity = 4096);  // rounded up to a power of two
    ~EventRing();
    bool push(const MemoryEvent& event);
    bool pop(MemoryEvent& event);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

struct Telemetry {
    // Frames and events carry seconds since then; a new layout does not start the clock anew.
    const std::chrono::steady_clock::time_point opened = std::chrono::steady_clock::now();
    MapChannel map;
    EventRing events;
    Counters counters;
};

}  // namespace granary

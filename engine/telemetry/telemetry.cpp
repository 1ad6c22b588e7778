// SPDX-License-Identifier: GPL-3.0-or-later
#include "granary/telemetry.h"

#include <algorithm>
#include <bit>

namespace granary {

std::string_view owner_name(Owner owner) {
    constexpr std::array<std::string_view, kOwners> names{
        "spare", "fixed", "workspace", "state", "kv", "loan", "experts", "quarantined"};
    const auto index = static_cast<size_t>(owner);
    return index < names.size() ? names[index] : "unknown";
}

// Three frames change places and none is copied. `ready` names the frame between writer and
// reader; its fresh bit says that the reader has not had it. Each side owns one frame more, so
// neither ever waits and no frame is written while it is read.
struct MapChannel::Impl {
    static constexpr uint8_t kFresh = 4;

    std::array<MapFrame, 3> frames;
    uint64_t published = 0;  // writer's
    uint8_t back = 0;        // writer's
    alignas(64) std::atomic<uint8_t> ready{1};
    alignas(64) uint8_t front = 2;  // reader's
};

MapChannel::MapChannel() : impl_(std::make_unique<Impl>()) {}
MapChannel::~MapChannel() = default;

MapFrame& MapChannel::back() {
    return impl_->frames[impl_->back];
}

void MapChannel::publish() {
    back().sequence = ++impl_->published;
    const auto handed_over = static_cast<uint8_t>(impl_->back | Impl::kFresh);
    impl_->back = impl_->ready.exchange(handed_over, std::memory_order_acq_rel) & 3;
}

const MapFrame* MapChannel::take() {
    if ((impl_->ready.load(std::memory_order_relaxed) & Impl::kFresh) == 0) return nullptr;
    impl_->front = impl_->ready.exchange(impl_->front, std::memory_order_acq_rel) & 3;
    return &front();
}

const MapFrame& MapChannel::front() const {
    return impl_->frames[impl_->front];
}

struct EventRing::Impl {
    explicit Impl(size_t capacity) : events(capacity) {}

    std::vector<MemoryEvent> events;              // a power of two of them
    alignas(64) std::atomic<uint64_t> pushed{0};  // written by the producer
    alignas(64) std::atomic<uint64_t> popped{0};  // written by the consumer

    MemoryEvent& at(uint64_t number) { return events[number & (events.size() - 1)]; }
};

EventRing::EventRing(size_t capacity)
    : impl_(std::make_unique<Impl>(std::bit_ceil(std::clamp<size_t>(capacity, 1, 1 << 20)))) {}
EventRing::~EventRing() = default;

bool EventRing::push(const MemoryEvent& event) {
    const uint64_t number = impl_->pushed.load(std::memory_order_relaxed);
    if (number - impl_->popped.load(std::memory_order_acquire) == impl_->events.size())
        return false;
    impl_->at(number) = event;
    impl_->pushed.store(number + 1, std::memory_order_release);
    return true;
}

bool EventRing::pop(MemoryEvent& event) {
    const uint64_t number = impl_->popped.load(std::memory_order_relaxed);
    if (number == impl_->pushed.load(std::memory_order_acquire)) return false;
    event = impl_->at(number);
    impl_->popped.store(number + 1, std::memory_order_release);
    return true;
}

}  // namespace granary

// SPDX-License-Identifier: GPL-3.0-or-later
// The streams of a GPU, with events that are created once: a load point, as granules are.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "gpu/cuda/context.h"
#include "gpu/device.h"

namespace granary::gpu::cuda {

class Streams {
  public:
    static Result<std::unique_ptr<Streams>> create(const SharedContext& context);
    ~Streams();  // waits for what is queued
    Streams(const Streams&) = delete;
    Streams& operator=(const Streams&) = delete;

    // Ticket of an event that could not be recorded: it passes when the device is lost.
    static constexpr uint64_t kUnrecorded = UINT64_MAX;

    // As in Device. What a call without a result could not do is the next synchronize's error, and
    // until then nothing more is copied or filled: it might follow an address that never came.
    void copy(StreamId stream, void* to, const void* from, size_t bytes);
    void copy_all(StreamId stream, std::span<const Copy> copies);  // none of 0 bytes
    void fill(StreamId stream, void* to, int byte, size_t bytes);
    gpu::Event record(StreamId stream);
    void wait(StreamId stream, gpu::Event event);
    Result<void> synchronize(StreamId stream);
    void wait_here(gpu::Event event);
    bool passed(gpu::Event event);
    void mark(uint32_t number);
    double seconds_between(uint32_t from, uint32_t to);
    // Keeps the first error for that.
    void note(Status status, std::string_view function, size_t bytes = 0);
    bool failed() const { return failed_.has_value(); }
    // That error, which is told now.
    std::optional<Error> take_failure() { return std::exchange(failed_, std::nullopt); }

    Stream stream(StreamId id) const { return queues_[static_cast<size_t>(id)].stream; }

  private:
    // Waiting for an event whose place was taken by a later one of its stream waits for that one:
    // longer than needed, never too short.
    static constexpr size_t kEvents = 64;
    struct Queue {
        Stream stream = nullptr;
        std::array<Event, kEvents> events{};
        uint64_t recorded = 0;
    };

    explicit Streams(const Driver& driver) : driver_(driver) {}
    Queue& queue(StreamId id) { return queues_[static_cast<size_t>(id)]; }

    const Driver& driver_;
    std::array<Queue, 2> queues_;     // by StreamId
    std::vector<Event> marks_;        // from the first mark on
    std::vector<Address> to_, from_;  // of copies that are given at once
    std::vector<size_t> bytes_;
    std::optional<Error> failed_;  // the first since the last synchronize
};

}  // namespace granary::gpu::cuda

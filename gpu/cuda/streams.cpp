// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/cuda/streams.h"

#include <algorithm>
#include <utility>

namespace granary::gpu::cuda {

Result<std::unique_ptr<Streams>> Streams::create(const SharedContext& context) {
    const Driver& driver = context.driver();
    std::unique_ptr<Streams> streams(new Streams(driver));
    for (Queue& queue : streams->queues_) {
        Status status = driver.stream_create(&queue.stream, kStreamNonBlocking);
        for (Event& event : queue.events)
            if (status == 0) status = driver.event_create(&event, kEventDisableTiming);
        if (status != 0)
            return tl::unexpected(driver.error(status, driver.stream_create.name(),
                                               "The GPU gives no streams and events"));
    }
    return streams;
}

// Errors have nobody who could act on them here; after a lost context they are expected.
Streams::~Streams() {
    for (Queue& queue : queues_) {
        if (queue.stream) (void)driver_.stream_synchronize(queue.stream);
        for (Event event : queue.events)
            if (event) (void)driver_.event_destroy(event);
        if (queue.stream) (void)driver_.stream_destroy(queue.stream);
    }
    for (Event event : marks_) (void)driver_.event_destroy(event);
}

void Streams::note(Status status, std::string_view function, size_t bytes) {
    if (status == 0 || failed_) return;
    failed_ = driver_.error(status, function, "The GPU could not be given work",
                            bytes > 0 ? format_bytes(bytes) : std::string());
}

void Streams::copy(StreamId stream, void* to, const void* from, size_t bytes) {
    if (bytes == 0 || failed()) return;
    note(driver_.copy_async(to, from, bytes, queue(stream).stream), "an asynchronous copy", bytes);
}

// Bytes: 0.9 MB each, as experts have them, come at 46.6 GB/s one after the other, at 55.2 like
// this; a long copy at 55.5 (H200).
void Streams::copy_all(StreamId stream, std::span<const Copy> copies) {
    if (!driver_.copies_at_once() || copies.size() < 2) {
        for (const Copy& each : copies) copy(stream, each.to, each.from, each.bytes);
        return;
    }
    if (failed()) return;
    to_.clear(), from_.clear(), bytes_.clear();
    size_t all = 0;
    for (const Copy& each : copies) {
        to_.push_back(reinterpret_cast<Address>(each.to));
        from_.push_back(reinterpret_cast<Address>(each.from));
        bytes_.push_back(each.bytes);
        all += each.bytes;
    }
    note(driver_.copy_all_async(to_.data(), from_.data(), bytes_.data(), to_.size(),
                                queue(stream).stream),
         "asynchronous copies", all);
}

void Streams::fill(StreamId stream, void* to, int byte, size_t bytes) {
    if (bytes == 0 || failed()) return;
    note(driver_.fill_async(reinterpret_cast<Address>(to), static_cast<unsigned char>(byte), bytes,
                            queue(stream).stream),
         driver_.fill_async.name(), bytes);
}

gpu::Event Streams::record(StreamId stream) {
    Queue& from = queue(stream);
    const uint64_t ticket = ++from.recorded;
    const Status status = driver_.event_record(from.events[ticket % kEvents], from.stream);
    note(status, driver_.event_record.name());
    return {status == 0 ? ticket : kUnrecorded, stream};
}

void Streams::wait(StreamId stream, gpu::Event event) {
    if (event.ticket == 0 || event.stream == stream) return;  // a stream is in order with itself
    const Event driver_event = queue(event.stream).events[event.ticket % kEvents];
    note(driver_.stream_wait(queue(stream).stream, driver_event, 0), driver_.stream_wait.name());
}

void Streams::wait_here(gpu::Event event) {
    if (event.ticket == 0) return;
    const Event driver_event = queue(event.stream).events[event.ticket % kEvents];
    note(driver_.event_synchronize(driver_event), driver_.event_synchronize.name());
}

bool Streams::passed(gpu::Event event) {
    constexpr Status kNotReady = 600;
    if (event.ticket == 0) return true;
    // Any event tells that the device is lost.
    const Status status = driver_.event_query(queue(event.stream).events[event.ticket % kEvents]);
    if (status == kNotReady || Driver::is_lost(status)) return status != kNotReady;
    note(status, driver_.event_query.name());
    return status == 0 && event.ticket != kUnrecorded;
}

void Streams::mark(uint32_t number) {
    while (marks_.size() <= number) {
        Event event = nullptr;
        const Status status = driver_.event_create(&event, 0);
        note(status, driver_.event_create.name());
        if (status != 0) return;
        marks_.push_back(event);
    }
    note(driver_.event_record(marks_[number], stream(StreamId::compute)),
         driver_.event_record.name());
}

double Streams::seconds_between(uint32_t from, uint32_t to) {
    float milliseconds = 0;
    if (std::max(from, to) < marks_.size())
        note(driver_.event_elapsed(&milliseconds, marks_[from], marks_[to]),
             driver_.event_elapsed.name());
    return milliseconds / 1e3;
}

Result<void> Streams::synchronize(StreamId stream) {
    const Status status = driver_.stream_synchronize(queue(stream).stream);
    if (status != 0 && (!failed_ || Driver::is_lost(status)))
        failed_ = driver_.error(status, driver_.stream_synchronize.name(),
                                "Work on the GPU did not end well");
    if (!failed_) return {};
    return tl::unexpected(*take_failure());
}

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/cuda/streams.h"

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
}

void Streams::note(Status status, std::string_view function, size_t bytes) {
    if (status == 0 || failed_) return;
    failed_ = driver_.error(status, function, "The GPU could not be given work",
                            bytes > 0 ? format_bytes(bytes) : std::string());
}

void Streams::copy(StreamId stream, void* to, const void* from, size_t bytes) {
    if (bytes == 0) return;
    note(driver_.copy_async(to, from, bytes, queue(stream).stream), "an asynchronous copy", bytes);
}

void Streams::fill(StreamId stream, void* to, int byte, size_t bytes) {
    if (bytes == 0) return;
    note(driver_.fill_async(reinterpret_cast<Address>(to), static_cast<unsigned char>(byte), bytes,
                            queue(stream).stream),
         driver_.fill_async.name(), bytes);
}

gpu::Event Streams::record(StreamId stream) {
    Queue& from = queue(stream);
    const uint64_t ticket = ++from.recorded;
    note(driver_.event_record(from.events[ticket % kEvents], from.stream),
         driver_.event_record.name());
    return {ticket, stream};
}

void Streams::wait(StreamId stream, gpu::Event event) {
    if (event.ticket == 0 || event.stream == stream) return;  // a stream is in order with itself
    const Event driver_event = queue(event.stream).events[event.ticket % kEvents];
    note(driver_.stream_wait(queue(stream).stream, driver_event, 0), driver_.stream_wait.name());
}

Result<void> Streams::synchronize(StreamId stream) {
    const Status status = driver_.stream_synchronize(queue(stream).stream);
    if (status != 0 && (!failed_ || Driver::is_lost(status)))
        failed_ = driver_.error(status, driver_.stream_synchronize.name(),
                                "Work on the GPU did not end well");
    if (!failed_) return {};
    return tl::unexpected(*std::exchange(failed_, std::nullopt));
}

}  // namespace granary::gpu::cuda

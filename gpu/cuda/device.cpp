// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/cuda/device.h"

#include <algorithm>
#include <string>
#include <utility>

namespace granary::gpu::cuda {
namespace {

// f16 products with f32 sums, operations that a multiprocessor does each clock, as the makers'
// papers on the architectures have them. GeForce cards sum in f32 at half their rate.
double products_a_clock(int capability) {
    if (capability >= 100 && capability < 120) return 8192;
    if (capability == 90) return 4096;
    if (capability == 80) return 2048;
    return capability >= 75 ? 512 : 128;
}

}  // namespace

template <class Call>
auto GpuMemory::guarded(Call&& call) -> decltype(call()) {
    if (lost_) return tl::unexpected(*lost_);
    const Status status = context_->make_current();
    decltype(call()) result = status == 0
                                  ? call()
                                  : tl::unexpected(context_->driver().error(
                                        status, context_->driver().context_set_current.name(),
                                        "The GPU does not answer"));
    if (!result && result.error().kind == ErrorKind::device_lost) lost_ = result.error();
    return result;
}

Result<std::unique_ptr<GpuMemory>> GpuMemory::open(std::shared_ptr<const Driver> driver,
                                                   const Options& options) {
    std::unique_ptr<GpuMemory> device(new GpuMemory);
    if (auto r = device->initialise(std::move(driver), options); !r)
        return tl::unexpected(r.error());
    return device;
}

Result<void> GpuMemory::initialise(std::shared_ptr<const Driver> driver, const Options& options) {
    const auto devices = list_devices(*driver);
    if (!devices) return tl::unexpected(devices.error());
    const auto facts =
        std::find_if(devices->begin(), devices->end(),
                     [&](const DeviceFacts& device) { return device.ordinal == options.device; });
    if (facts == devices->end())
        return fail(
            ErrorKind::invalid_argument, "There is no such GPU",
            std::to_string(options.device) + ", " + std::to_string(devices->size()) + " are there");
    if (!facts->maps_memory)
        return fail(ErrorKind::unsupported,
                    "The driver cannot map this GPU's memory piece by piece", facts->name,
                    "Update the driver");

    constexpr size_t kLeast = size_t{2} << 20;
    const size_t recommended = std::max(kLeast, facts->granule_bytes);
    info_.granule_bytes = options.granule_bytes == 0 ? recommended : options.granule_bytes;
    if (info_.granule_bytes % facts->granule_bytes != 0 || info_.granule_bytes < kLeast)
        return fail(ErrorKind::invalid_argument, "Granules of this size cannot be had",
                    format_bytes(info_.granule_bytes) + ", a multiple of " +
                        format_bytes(recommended) + " is needed");
    info_.id = (driver->api() == Api::cuda ? "cuda:" : "hip:") + std::to_string(facts->ordinal);
    info_.name = facts->name;
    facts_ = *facts;
    info_.promised = {facts->processors * facts->clock_hz * products_a_clock(facts->capability),
                      facts->memory_rate};
    info_.face = Face::card;

    auto context = SharedContext::create(std::move(driver), options.device);
    if (!context) return tl::unexpected(context.error());
    context_ = std::move(*context);
    memory_ = std::make_unique<Memory>(*context_, info_.granule_bytes);
    auto streams = Streams::create(*context_);
    if (!streams) return tl::unexpected(streams.error());
    streams_ = std::move(*streams);
    const auto now = memory_now();
    if (!now) return tl::unexpected(now.error());
    info_.free_bytes = now->first;
    info_.total_bytes = now->second;
    return {};
}

GpuMemory::~GpuMemory() {
    // The destructors of the parts need the context; whether it is alive is theirs to find out.
    if (!context_) return;
    (void)context_->make_current();
    streams_.reset();  // waits for copies from what is let go here
    for (GraphExec recording : recordings_) (void)context_->driver().graph_exec_destroy(recording);
    for (const std::span<std::byte> memory : locked_)
        (void)context_->driver().host_unregister(memory.data());
}

Result<std::pair<uint64_t, uint64_t>> GpuMemory::memory_now() {
    return guarded([&]() -> Result<std::pair<uint64_t, uint64_t>> {
        size_t free_bytes = 0, total_bytes = 0;
        const Driver& driver = context_->driver();
        if (const Status status = driver.memory_info(&free_bytes, &total_bytes); status != 0)
            return tl::unexpected(driver.error(status, driver.memory_info.name(),
                                               "The GPU does not say how much memory is free"));
        return std::pair<uint64_t, uint64_t>{free_bytes, total_bytes};
    });
}

// A figure for people: where the driver does not say, the last one stands.
void GpuMemory::refresh_free_bytes() {
    if (const auto now = memory_now()) info_.free_bytes = now->first;
}

Result<RangeId> GpuMemory::reserve(size_t places) {
    return guarded([&] { return memory_->reserve(places); });
}

void GpuMemory::release(RangeId range) {
    if (!lost_ && context_->make_current() == 0) memory_->release(range);
}

Result<void> GpuMemory::create_granules(size_t count) {
    if (count == 0) return {};
    ++driver_allocations_;
    auto created = guarded([&] { return memory_->create(count); });
    refresh_free_bytes();
    return created;
}

Result<void> GpuMemory::release_granules(std::span<const GranuleId> granules) {
    auto released = guarded([&] { return memory_->release_granules(granules); });
    refresh_free_bytes();
    return released;
}

Result<void> GpuMemory::recreate_granules(std::span<const GranuleId> granules) {
    if (granules.empty()) return {};
    ++driver_allocations_;
    auto recreated = guarded([&] { return memory_->recreate(granules); });
    refresh_free_bytes();
    return recreated;
}

Result<void> GpuMemory::map(RangeId range, size_t first, std::span<const GranuleId> granules) {
    return guarded([&] { return memory_->map(range, first, granules); });
}

Result<void> GpuMemory::unmap(RangeId range, size_t first, size_t count) {
    return guarded([&] { return memory_->unmap(range, first, count); });
}

Result<HostBuffer> GpuMemory::page_locked(size_t bytes) {
    if (bytes == 0) return HostBuffer{};
    ++driver_allocations_;
    return guarded([&]() -> Result<HostBuffer> {
        const Driver& driver = context_->driver();
        void* memory = nullptr;
        if (const Status status = driver.host_alloc(&memory, bytes, kHostPortable | kHostMapped);
            status != 0)
            return tl::unexpected(driver.error(status, driver.host_alloc.name(),
                                               "There is no page-locked main memory for a buffer",
                                               format_bytes(bytes)));
        // The buffer keeps its context alive; it may be freed by any thread.
        HostBuffer buffer;
        buffer.data = {static_cast<std::byte*>(memory), [context = context_](std::byte* data) {
                           (void)context->make_current();
                           (void)context->driver().host_free(data);
                       }};
        buffer.bytes = bytes;
        return buffer;
    });
}

Result<void> GpuMemory::lock_pages(std::span<const std::byte> memory) {
    if (memory.empty()) return {};
    return guarded([&]() -> Result<void> {
        const Driver& driver = context_->driver();
        auto* const start = const_cast<std::byte*>(memory.data());
        const unsigned flags = kHostPortable | kHostMapped | kHostReadOnly;
        if (const Status status = driver.host_register(start, memory.size(), flags); status != 0)
            return tl::unexpected(driver.error(status, driver.host_register.name(),
                                               "The model file cannot be locked in main memory",
                                               format_bytes(memory.size())));
        locked_.emplace_back(start, memory.size());
        return {};
    });
}

Result<void> GpuMemory::begin_recording() {
    return guarded([&]() -> Result<void> {
        const Driver& driver = context_->driver();
        if (const Status status =
                driver.capture_begin(stream(StreamId::compute), kCaptureThreadLocal);
            status != 0)
            return tl::unexpected(driver.error(status, driver.capture_begin.name(),
                                               "Work for the GPU cannot be recorded"));
        return {};
    });
}

Result<RecordingId> GpuMemory::end_recording() {
    ++driver_allocations_;
    return guarded([&]() -> Result<RecordingId> {
        const Driver& driver = context_->driver();
        const Stream compute = stream(StreamId::compute);
        Graph graph = nullptr;
        GraphExec recording = nullptr;
        Status status = driver.capture_end(compute, &graph);
        // What could not be recorded would be missing in every replay.
        const std::optional<Error> failure = streams_->take_failure();
        if (status == 0 && !failure) status = driver.graph_instantiate(&recording, graph, 0);
        if (graph) (void)driver.graph_destroy(graph);
        if (failure) return tl::unexpected(*failure);
        if (status == 0) status = driver.graph_upload(recording, compute);
        if (status != 0) {
            if (recording) (void)driver.graph_exec_destroy(recording);
            return tl::unexpected(driver.error(status, driver.graph_instantiate.name(),
                                               "Work for the GPU cannot be recorded"));
        }
        recordings_.push_back(recording);
        return static_cast<RecordingId>(recordings_.size() - 1);
    });
}

bool GpuMemory::replay(RecordingId recording) {
    if (!takes_work()) return false;
    const Driver& driver = context_->driver();
    Status status = context_->make_current();
    if (status == 0)
        status = driver.graph_launch(recordings_.at(recording), stream(StreamId::compute));
    streams_->note(status, driver.graph_launch.name());
    return status == 0;
}

template <class Call>
void GpuMemory::queued(Call&& call) {
    if (lost_) return;
    if (const Status status = context_->make_current(); status != 0)
        streams_->note(status, context_->driver().context_set_current.name());
    else
        call();
}

// The driver refuses to copy across the end of what is locked. The second may have nothing.
std::array<Copy, 2> GpuMemory::pieces_of(const Copy& copy) const {
    const auto* const source = static_cast<const std::byte*>(copy.from);
    size_t first = copy.bytes;
    for (const std::span<std::byte> memory : locked_) {
        const std::byte* const end = memory.data() + memory.size();
        if (source >= memory.data() && source < end && source + copy.bytes > end)
            first = static_cast<size_t>(end - source);
    }
    return {{{copy.to, copy.from, first},
             {static_cast<std::byte*>(copy.to) + first, source + first, copy.bytes - first}}};
}

void GpuMemory::copy(StreamId stream, void* to, const void* from, size_t bytes) {
    queued([&] {
        for (const Copy& piece : pieces_of({to, from, bytes}))
            streams_->copy(stream, piece.to, piece.from, piece.bytes);
    });
}

void GpuMemory::copy_all(StreamId stream, std::span<const Copy> copies) {
    pieces_.clear();
    for (const Copy& copy : copies)
        for (const Copy& piece : pieces_of(copy))
            if (piece.bytes > 0) pieces_.push_back(piece);
    queued([&] { streams_->copy_all(stream, pieces_); });
}

void GpuMemory::fill(StreamId stream, void* to, int byte, size_t bytes) {
    queued([&] { streams_->fill(stream, to, byte, bytes); });
}

gpu::Event GpuMemory::record(StreamId stream) {
    gpu::Event event{Streams::kUnrecorded, stream};
    queued([&] { event = streams_->record(stream); });
    return event;
}

void GpuMemory::wait(StreamId stream, gpu::Event event) {
    queued([&] { streams_->wait(stream, event); });
}

Result<void> GpuMemory::synchronize(StreamId stream) {
    return guarded([&] { return streams_->synchronize(stream); });
}

void GpuMemory::wait_here(gpu::Event event) {
    queued([&] { streams_->wait_here(event); });
}

bool GpuMemory::passed(gpu::Event event) {
    bool passed = lost_.has_value();
    queued([&] { passed = streams_->passed(event); });
    return passed;
}

void GpuMemory::mark(uint32_t number) {
    queued([&] { streams_->mark(number); });
}

double GpuMemory::seconds_between(uint32_t from, uint32_t to) {
    double seconds = 0;
    queued([&] { seconds = streams_->seconds_between(from, to); });
    return seconds;
}

uint64_t GpuMemory::free_bytes_now() {
    refresh_free_bytes();
    return info_.free_bytes;
}

}  // namespace granary::gpu::cuda

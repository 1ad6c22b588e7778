// SPDX-License-Identifier: GPL-3.0-or-later
// A GPU as a device, but for its kernels.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "gpu/cuda/context.h"
#include "gpu/cuda/memory.h"
#include "gpu/cuda/streams.h"
#include "gpu/device.h"

namespace granary::gpu::cuda {

struct Options {
    Ordinal device = 0;        // of list_devices
    size_t granule_bytes = 0;  // 0: what the driver recommends, 2 MiB at least
};

// Once the context is lost, every call answers so at once and touches nothing. Destroying the
// device still gives its memory back, but driver 580 gives no new context to a process that lost
// one, whether of its own or the shared one: opening the device again answers device_lost too.
class GpuMemory : public virtual DeviceMemory {
  public:
    // Errors: unsupported for a GPU that cannot map memory; invalid_argument for a device or a
    // granule size that does not exist; else the driver's.
    static Result<std::unique_ptr<GpuMemory>> open(std::shared_ptr<const Driver> driver,
                                                   const Options& options);
    ~GpuMemory() override;

    const DeviceInfo& info() const override { return info_; }

    Result<RangeId> reserve(size_t places) override;
    void release(RangeId range) override;
    std::byte* base(RangeId range) const override { return memory_->base(range); }
    size_t places(RangeId range) const override { return memory_->places(range); }
    Result<void> create_granules(size_t count) override;
    size_t granules() const override { return memory_->granules(); }
    Result<void> release_granules(std::span<const GranuleId> granules) override;
    Result<void> recreate_granules(std::span<const GranuleId> granules) override;
    bool held(GranuleId granule) const override { return memory_->held(granule); }
    Result<void> map(RangeId range, size_t first, std::span<const GranuleId> granules) override;
    Result<void> unmap(RangeId range, size_t first, size_t count) override;
    uint64_t driver_allocations() const override { return driver_allocations_; }
    uint64_t driver_bytes() const override { return memory_->bytes(); }
    Result<HostBuffer> page_locked(size_t bytes) override;
    Result<void> lock_pages(std::span<const std::byte> memory) override;
    bool wants_locked_memory() const override { return true; }

    void copy(StreamId stream, void* to, const void* from, size_t bytes) override;
    void copy_all(StreamId stream, std::span<const Copy> copies) override;
    void fill(StreamId stream, void* to, int byte, size_t bytes) override;
    gpu::Event record(StreamId stream) override;
    void wait(StreamId stream, gpu::Event event) override;
    Result<void> synchronize(StreamId stream) override;
    void wait_here(gpu::Event event) override;
    bool passed(gpu::Event event) override;
    void mark(uint32_t number) override;
    double seconds_between(uint32_t from, uint32_t to) override;
    uint64_t free_bytes_now() override;
    bool records() const override { return true; }
    Result<void> begin_recording() override;
    Result<RecordingId> end_recording() override;
    bool replay(RecordingId recording) override;

    // For those who queue kernels.
    const SharedContext& context() const { return *context_; }
    const DeviceFacts& facts() const { return facts_; }
    Stream stream(StreamId id) const { return streams_->stream(id); }
    // False once work could not be queued, until synchronize has said so: kernels that follow might
    // read what never came, addresses above all.
    bool takes_work() const { return !lost_ && !streams_->failed(); }
    // What could not be queued is the next synchronize's error.
    void note(Status status, std::string_view function) { streams_->note(status, function); }
    // Free and total bytes of the device's memory, as the driver says now.
    Result<std::pair<uint64_t, uint64_t>> memory_now();

  protected:
    GpuMemory() = default;
    Result<void> initialise(std::shared_ptr<const Driver> driver, const Options& options);

  private:
    // Runs `call` with the context current, unless it is lost, and keeps the error by which it is.
    template <class Call>
    auto guarded(Call&& call) -> decltype(call());
    // The same for work without a result: what fails is the next synchronize's error.
    template <class Call>
    void queued(Call&& call);
    void refresh_free_bytes();
    std::array<Copy, 2> pieces_of(const Copy& copy) const;

    // In this order, so that each goes before what it uses.
    std::shared_ptr<SharedContext> context_;
    std::unique_ptr<Memory> memory_;
    std::unique_ptr<Streams> streams_;
    std::vector<std::span<std::byte>> locked_;  // by lock_pages
    std::vector<Copy> pieces_;                  // of copies that are given at once
    std::vector<GraphExec> recordings_;         // by RecordingId
    DeviceInfo info_;
    DeviceFacts facts_;
    std::optional<Error> lost_;
    uint64_t driver_allocations_ = 0;
};

}  // namespace granary::gpu::cuda

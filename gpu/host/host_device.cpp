// SPDX-License-Identifier: GPL-3.0-or-later
// The CPU as a device. Compute work runs inline on the calling thread and the pool, so the compute
// stream is always up to date; on the card face copies run on a thread of their own.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "gpu/device.h"
#include "gpu/host/copy_thread.h"
#include "gpu/host/host_kernels.h"
#include "gpu/host/machine.h"
#include "gpu/host/memory.h"
#include "gpu/host/thread_pool.h"

namespace granary::gpu {

namespace {

class HostDevice final : public Device {
  public:
    HostDevice(const HostDeviceOptions& options, DeviceInfo info)
        : info_(std::move(info)), memory_(info_.granule_bytes), pool_(info_.threads, options.nice) {
        if (info_.face == Face::card) copies_.emplace(options.nice);
    }

    const DeviceInfo& info() const override { return info_; }
    unsigned threads() const { return pool_.threads(); }

    Kernels& kernels() override {
        if (!kernels_) kernels_ = host::make_host_kernels(pool_);
        return *kernels_;
    }

    Result<RangeId> reserve(size_t places) override { return memory_.reserve(places); }
    void release(RangeId range) override { memory_.release(range); }
    std::byte* base(RangeId range) const override { return memory_.base(range); }
    size_t places(RangeId range) const override { return memory_.places(range); }

    Result<void> create_granules(size_t count) override {
        return ask_driver(count, [&] { return memory_.create(count); });
    }
    size_t granules() const override { return memory_.granules(); }
    Result<void> release_granules(std::span<const GranuleId> granules) override {
        Result<void> released = memory_.release_granules(granules);
        refresh_free_bytes();
        return released;
    }
    Result<void> recreate_granules(std::span<const GranuleId> granules) override {
        return ask_driver(granules.size(), [&] { return memory_.recreate(granules); });
    }
    bool held(GranuleId granule) const override { return memory_.held(granule); }

    Result<void> map(RangeId range, size_t first, std::span<const GranuleId> granules) override {
        return memory_.map(range, first, granules);
    }
    Result<void> unmap(RangeId range, size_t first, size_t count) override {
        return memory_.unmap(range, first, count);
    }

    uint64_t driver_allocations() const override { return driver_allocations_; }
    uint64_t driver_bytes() const override { return memory_.system_bytes(); }

    // There is no driver that would want the memory locked; its pages are taken now, so that
    // using it later waits for nothing.
    Result<HostBuffer> page_locked(size_t bytes) override {
        if (bytes == 0) return HostBuffer{};
        ++driver_allocations_;
        const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        const uint64_t free_bytes = host::machine_memory().free_bytes;
        void* memory = nullptr;
        if (bytes <= free_bytes)
            memory = std::aligned_alloc(page, (bytes + page - 1) / page * page);
        if (!memory)
            return fail(
                ErrorKind::out_of_memory, "There is no main memory for a buffer",
                format_bytes(bytes) + " were asked for, " + format_bytes(free_bytes) + " are free",
                "Close other programs or choose smaller settings");
        std::memset(memory, 0, bytes);
        refresh_free_bytes();
        HostBuffer buffer;
        buffer.data = {static_cast<std::byte*>(memory), [](std::byte* data) { std::free(data); }};
        buffer.bytes = bytes;
        return buffer;
    }

    void copy(StreamId stream, void* to, const void* from, size_t bytes) override {
        if (stream == StreamId::copy && copies_)
            copies_->copy(to, from, bytes);
        else if (bytes > 0)
            std::memcpy(to, from, bytes);
    }
    void fill(StreamId stream, void* to, int byte, size_t bytes) override {
        if (stream == StreamId::copy && copies_)
            copies_->fill(to, byte, bytes);
        else if (bytes > 0)
            std::memset(to, byte, bytes);
    }

    // Inline work is done when its call returns: ticket 0 stands for that.
    Event record(StreamId stream) override {
        return {stream == StreamId::copy && copies_ ? copies_->ticket() : 0, stream};
    }
    void wait(StreamId stream, Event event) override {
        if (event.stream == StreamId::copy && stream != StreamId::copy && copies_)
            copies_->wait(event.ticket);
    }
    Result<void> synchronize(StreamId stream) override {
        if (stream == StreamId::copy && copies_) copies_->wait(copies_->ticket());
        return {};
    }
    void wait_here(Event event) override { wait(StreamId::compute, event); }
    bool passed(Event event) override {
        return event.stream != StreamId::copy || !copies_ || copies_->done() >= event.ticket;
    }

  private:
    template <class Call>
    Result<void> ask_driver(size_t count, Call&& call) {
        if (count == 0) return {};
        ++driver_allocations_;
        const uint64_t left = info_.total_bytes - std::min(info_.total_bytes, memory_.bytes());
        if (info_.face == Face::card && count > left / info_.granule_bytes)
            return fail(ErrorKind::out_of_memory, "The card has no memory for more granules",
                        std::to_string(count) + " of " + format_bytes(info_.granule_bytes) +
                            " were asked for, " + format_bytes(left) + " are left of " +
                            format_bytes(info_.total_bytes));
        Result<void> given = call();
        refresh_free_bytes();
        return given;
    }
    void refresh_free_bytes() {
        info_.free_bytes = host::machine_memory().free_bytes;
        if (info_.face == Face::card)
            info_.free_bytes = std::min(info_.free_bytes, info_.total_bytes - memory_.bytes());
    }

    DeviceInfo info_;
    host::Memory memory_;
    host::ThreadPool pool_;
    std::unique_ptr<Kernels> kernels_;        // after pool_, which it uses
    std::optional<host::CopyThread> copies_;  // after memory_, which it writes to
    uint64_t driver_allocations_ = 0;
};

tl::unexpected<Error> bad_option(std::string what, std::string detail) {
    return fail(ErrorKind::invalid_argument, std::move(what), std::move(detail));
}

}  // namespace

Result<DeviceInfo> host_device_info(const HostDeviceOptions& options) {
    constexpr unsigned kMostThreads = 256;
    constexpr uint64_t kGiB = uint64_t{1} << 30;
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));

    DeviceInfo info;
    info.id = "host";
    info.face = options.face;
    info.granule_bytes = options.granule_bytes;
    if (info.granule_bytes == 0) info.granule_bytes = default_granule_bytes(options.budget_bytes);
    info.threads =
        options.threads == 0 ? std::min(host::usable_cores(), kMostThreads) : options.threads;
    if (info.granule_bytes % page != 0 || info.granule_bytes > kGiB)
        return bad_option("A granule must be whole pages, 1 GiB at most",
                          format_bytes(info.granule_bytes) + ", a page is " + format_bytes(page));
    if (info.threads > kMostThreads)
        return bad_option(
            "There are too many threads",
            std::to_string(info.threads) + ", " + std::to_string(kMostThreads) + " are allowed");
    const host::MachineMemory machine = host::machine_memory();
    if (options.face == Face::card) {
        info.total_bytes = options.budget_bytes / info.granule_bytes * info.granule_bytes;
        if (info.total_bytes == 0)
            return bad_option("The budget of an emulated card holds no granule",
                              format_bytes(options.budget_bytes) + ", a granule is " +
                                  format_bytes(info.granule_bytes));
        info.free_bytes = std::min(info.total_bytes, machine.free_bytes);
        info.name = "Emulated card, " + format_bytes(info.total_bytes) + " of RAM";
    } else {
        if (options.budget_bytes != 0)
            return bad_option("Only the card face takes a budget",
                              format_bytes(options.budget_bytes));
        info.total_bytes = machine.total_bytes;
        info.free_bytes = machine.free_bytes;
        info.name = host::cpu_name() + ", " + std::to_string(info.threads) +
                    (info.threads == 1 ? " thread, " : " threads, ") + host::vector_instructions();
    }

    return info;
}

Result<std::unique_ptr<Device>> make_host_device(const HostDeviceOptions& options) {
    auto info = host_device_info(options);
    if (!info) return tl::unexpected(info.error());
    const unsigned threads = info->threads;
    try {
        auto device = std::make_unique<HostDevice>(options, std::move(*info));
        if (device->threads() == threads) return device;
        return fail(ErrorKind::device, "The system refuses to start threads",
                    std::to_string(device->threads()) + " of " + std::to_string(threads),
                    "Choose fewer threads");
    } catch (const std::system_error& error) {
        return fail(ErrorKind::device, "The system refuses to start threads", error.what(),
                    "Choose fewer threads");
    }
}

}  // namespace granary::gpu

// SPDX-License-Identifier: GPL-3.0-or-later
// A device: its memory as ranges and granules, its streams, events and copies.
//
// Addresses live in ranges, memory lives in granules, and mapping puts a granule behind one place
// of a range. Addresses never move. Every granule is created at a load point and none afterwards:
// driver_allocations() counts the calls that asked the driver for memory.
//
// One thread at a time may call a device's memory functions; streams may run meanwhile.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu/error.h"

namespace granary::gpu {

class Kernels;

// unified: CPU and device share memory; weights are read in place from the mapped file.
// card: a discrete card with its own memory, reached over a link.
enum class Face { unified, card };

// What a device can do at most; 0: not known.
struct DeviceLimits {
    double products = 0;  // f16 with f32 sums, operations a second
    double memory = 0;    // of its own, bytes read and written a second
};

struct DeviceInfo {
    std::string id;    // "host", later "cuda:0", "hip:0"
    std::string name;  // "AMD EPYC, 2 threads, AVX-512"; "Emulated card, 40 MiB of RAM"
    Face face = Face::unified;
    size_t granule_bytes = 0;
    uint64_t total_bytes = 0;  // of the device's memory
    uint64_t free_bytes = 0;   // for everybody, as of the last allocation
    unsigned threads = 0;      // host only
    DeviceLimits promised;     // by clocks and widths; GPUs only
};

using GranuleId = uint32_t;  // index by creation, 0..created-1
using RangeId = uint32_t;
using RecordingId = uint32_t;

// An in-order queue of device work. Work of different streams may overlap.
enum class StreamId : uint8_t { compute, copy };

// A point in a stream; see Device::record.
struct Event {
    uint64_t ticket = 0;
    StreamId stream = StreamId::compute;
};

// Page-locked host memory; frees itself. Not device memory and not counted as such.
struct HostBuffer {
    std::unique_ptr<std::byte[], std::function<void(std::byte*)>> data;
    size_t bytes = 0;
};

struct Copy {
    void* to;
    const void* from;
    size_t bytes;
};

// All of a device but its kernels.
class DeviceMemory {
  public:
    virtual ~DeviceMemory() = default;

    virtual const DeviceInfo& info() const = 0;

    // ---- memory --------------------------------------------------------------------------
    // Reserves addresses for `places` granules; maps nothing.
    virtual Result<RangeId> reserve(size_t places) = 0;
    virtual void release(RangeId range) = 0;  // its places must be unmapped
    virtual std::byte* base(RangeId range) const = 0;
    virtual size_t places(RangeId range) const = 0;

    // Asks the driver for `count` more granules, ids following on. Only at a load point.
    virtual Result<void> create_granules(size_t count) = 0;
    virtual size_t granules() const = 0;  // ids given so far, whether held or not

    // Gives the memory of unmapped granules back to the driver; their ids stay reserved. Content is
    // lost. On error each granule of the call is either given back or as it was: held() tells.
    virtual Result<void> release_granules(std::span<const GranuleId> granules) = 0;
    // Asks the driver for the memory of granules that were given back; a load point, as
    // create_granules is. On error none of the call is held.
    virtual Result<void> recreate_granules(std::span<const GranuleId> granules) = 0;
    virtual bool held(GranuleId granule) const = 0;

    // Maps granules[i] at place first + i; the places are unmapped before. The content is
    // whatever the granule held. On error nothing of the call stays mapped.
    virtual Result<void> map(RangeId range, size_t first, std::span<const GranuleId> granules) = 0;
    // Unmaps places [first, first + count). No stream may still touch them.
    virtual Result<void> unmap(RangeId range, size_t first, size_t count) = 0;

    // Calls that asked the driver for memory (create_granules, recreate_granules and page_locked)
    // since creation, and the bytes of device memory that it holds for granules now, as it says.
    virtual uint64_t driver_allocations() const = 0;
    virtual uint64_t driver_bytes() const = 0;

    virtual Result<HostBuffer> page_locked(size_t bytes) = 0;
    // Lets the device read host memory that is mapped already (a model file) where it lies, until
    // the device is gone; counts as no allocation. Whole pages; they must stay mapped. Errors: the
    // driver's, where the system does not allow it. A device that computes in main memory has
    // nothing to do.
    virtual Result<void> lock_pages(std::span<const std::byte>) { return {}; }
    // Whether the device can read host memory only where it is locked.
    virtual bool wants_locked_memory() const { return false; }

    // ---- streams -------------------------------------------------------------------------
    // Host memory that is not page-locked is read before the call returns on the compute stream; on
    // the copy stream, as page-locked memory on both, it must stay as it is until the copy is done.
    virtual void copy(StreamId stream, void* to, const void* from, size_t bytes) = 0;
    // Many of them from locked memory, in any order among themselves, to places that do not
    // overlap: small ones come as fast as one long copy where the device can be given them at once.
    virtual void copy_all(StreamId stream, std::span<const Copy> copies) {
        for (const Copy& each : copies) copy(stream, each.to, each.from, each.bytes);
    }
    virtual void fill(StreamId stream, void* to, int byte, size_t bytes) = 0;
    virtual Event record(StreamId stream) = 0;
    virtual void wait(StreamId stream, Event event) = 0;  // later work waits; the caller may not
    // Errors: what went wrong in any stream since the last call.
    virtual Result<void> synchronize(StreamId stream) = 0;
    // The caller waits until the event's stream has got there; errors are left to synchronize.
    virtual void wait_here(Event event) = 0;
    // Whether its stream has got there, or never will: the device has failed.
    virtual bool passed(Event event) = 0;

    // ---- measurements --------------------------------------------------------------------
    // Marks 0 .. kMarks - 1 of the compute stream remember when it got to them. A device that
    // computes while it is called needs no more than this.
    static constexpr uint32_t kMarks = 4096;
    virtual void mark(uint32_t number);
    // From one mark to another; the stream has passed both.
    virtual double seconds_between(uint32_t from, uint32_t to);
    // For everybody, as the driver says now.
    virtual uint64_t free_bytes_now() { return info().free_bytes; }

    // ---- recorded work -------------------------------------------------------------------
    // What is queued on the compute stream between begin and end is not done but recorded, and
    // replay() queues all of it as one. Arguments are those of the recording; memory is read as it
    // is at the replay; false: it could not be queued, and synchronize says why. A load point: the
    // driver takes memory for it. Errors: the driver's; unsupported where records() says no.
    virtual bool records() const { return false; }
    virtual Result<void> begin_recording();
    virtual Result<RecordingId> end_recording();
    virtual bool replay(RecordingId) { return false; }

  private:
    std::vector<std::chrono::steady_clock::time_point> marks_;
};

class Device : public virtual DeviceMemory {
  public:
    virtual Kernels& kernels() = 0;
    // By kernels that do nothing else, in a fraction of a second; writes to `scratch`.
    virtual Result<DeviceLimits> measure_limits(std::span<std::byte>) { return DeviceLimits{}; }
};

// The host as a device. The card face emulates a card of `budget_bytes`, rounded down to whole
// granules, with a copy thread for the link; the unified face takes no budget. On both, granules
// are pieces of one memfd, so a range may consist of 30,000 separate mappings at most.
struct HostDeviceOptions {
    Face face = Face::unified;
    size_t granule_bytes = 0;  // whole pages; 0: default_granule_bytes
    uint64_t budget_bytes = 0;
    unsigned threads = 0;  // 0: the cores that this process may use
    int nice = 0;          // of the worker threads
};
// The host's granules where nobody asks for others: small budgets show more in small ones.
constexpr size_t default_granule_bytes(uint64_t budget_bytes) {
    return budget_bytes < uint64_t{1} << 30 ? 64 << 10 : 2 << 20;
}
Result<std::unique_ptr<Device>> make_host_device(const HostDeviceOptions& options);
// What such a device would say of itself, without making one: for plans.
Result<DeviceInfo> host_device_info(const HostDeviceOptions& options);

// With what a prompt's matrices are multiplied.
enum class CudaProducts : uint8_t {
    // Experts by 8-bit integers, where their type has such products, on cards that do products of
    // f16 with f32 sums at half their rate: compute capability 7.5, 8.6, 8.9 and 12.0. Dense
    // matrices, which keep 16 bits of activations, would gain nothing. All else f16.
    fastest,
    f16,   // by what every card from 7.5 on has
    int8,  // experts and dense matrices whose type has such products
};
// A card of NVIDIA's, by the driver's number.
struct CudaDeviceOptions {
    int ordinal = 0;
    size_t granule_bytes = 0;  // 0: what the driver recommends, 2 MiB at least
    CudaProducts products = CudaProducts::fastest;
};
// Errors: unsupported, with the reason, where this build has no CUDA kernels, the machine no driver
// that runs them, or the card cannot map memory; else the driver's.
Result<std::unique_ptr<Device>> make_cuda_device(const CudaDeviceOptions& options);

}  // namespace granary::gpu

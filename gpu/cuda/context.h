// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "gpu/cuda/driver.h"

namespace granary::gpu::cuda {

// What the driver says of a device.
struct DeviceFacts {
    Ordinal ordinal = 0;
    std::string name;    // "NVIDIA GeForce RTX 3080 Ti"
    std::string bus_id;  // "0000:01:00.0"
    int capability = 0;  // 86 is 8.6; HIP counts its own way
    int processors = 0;  // multiprocessors, or compute units
    bool integrated = false;
    bool maps_memory = false;  // has ranges and granules at all
    bool watched = false;      // drives a display: kernels that run too long are killed
    size_t total_bytes = 0;    // of its memory
    double clock_hz = 0;       // of its processors at most; 0: the driver does not say
    double memory_rate = 0;    // bytes/s by the memory's clock and width; 0: not known
    size_t granule_bytes = 0;  // the recommended granularity; 0 where maps_memory is false
};
// Every device of the driver, in its order. Errors: the driver's.
Result<std::vector<DeviceFacts>> list_devices(const Driver& driver);

// The context of a device that all users in this process share, alive while one of them is.
class SharedContext {
  public:
    static Result<std::shared_ptr<SharedContext>> create(std::shared_ptr<const Driver> driver,
                                                         Ordinal device);
    ~SharedContext();
    SharedContext(const SharedContext&) = delete;
    SharedContext& operator=(const SharedContext&) = delete;

    // For the calling thread, as most functions of the driver need it.
    Status make_current() const { return driver_->context_set_current(context_); }
    const Driver& driver() const { return *driver_; }
    const std::shared_ptr<const Driver>& shared_driver() const { return driver_; }
    Ordinal device() const { return device_; }

  private:
    SharedContext(std::shared_ptr<const Driver> driver, Ordinal device, Context context)
        : driver_(std::move(driver)), device_(device), context_(context) {}

    std::shared_ptr<const Driver> driver_;
    Ordinal device_;
    Context context_;
};

}  // namespace granary::gpu::cuda

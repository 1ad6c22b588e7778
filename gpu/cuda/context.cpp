// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/cuda/context.h"

#include <algorithm>
#include <utility>

namespace granary::gpu::cuda {
namespace {

// Numbers of attributes, which the two interfaces count differently.
struct Attributes {
    int major, minor, processors, integrated, watched, maps_memory;
    int clock, memory_clock, memory_width;  // kHz, kHz, bits; 0: not asked
};
constexpr Attributes kCuda{75, 76, 16, 18, 17, 102, 13, 36, 37};
constexpr Attributes kHip{23, 61, 63, 16, 18, 89, 0, 0, 0};  // of ROCm 6

}  // namespace

Result<std::vector<DeviceFacts>> list_devices(const Driver& driver) {
    const Attributes& names = driver.api() == Api::cuda ? kCuda : kHip;
    std::vector<DeviceFacts> devices;
    int count = 0;
    Status status = driver.device_count(&count);
    const auto attribute = [&](Ordinal device, int name) {
        int value = 0;
        if (status == 0) status = driver.device_attribute(&value, name, device);
        return value;
    };
    for (int i = 0; status == 0 && i < count; ++i) {
        DeviceFacts facts;
        char name[256] = {}, bus_id[32] = {};
        status = driver.device_get(&facts.ordinal, i);
        if (status == 0) status = driver.device_name(name, sizeof name - 1, facts.ordinal);
        if (status == 0) status = driver.device_bus_id(bus_id, sizeof bus_id - 1, facts.ordinal);
        if (status == 0) status = driver.device_total_memory(&facts.total_bytes, facts.ordinal);
        facts.name = name;
        facts.bus_id = bus_id;
        facts.capability =
            10 * attribute(facts.ordinal, names.major) + attribute(facts.ordinal, names.minor);
#ifdef GRANARY_CUDA_AS_TURING
        facts.capability = std::min(facts.capability, 75);
#endif
        facts.processors = attribute(facts.ordinal, names.processors);
        facts.integrated = attribute(facts.ordinal, names.integrated) != 0;
        facts.watched = attribute(facts.ordinal, names.watched) != 0;
        facts.maps_memory = attribute(facts.ordinal, names.maps_memory) != 0;
        if (names.clock) {
            facts.clock_hz = 1e3 * attribute(facts.ordinal, names.clock);
            // Twice a clock, as all memory of GPUs does.
            facts.memory_rate = 1e3 * attribute(facts.ordinal, names.memory_clock) * 2 *
                                attribute(facts.ordinal, names.memory_width) / 8;
        }
        if (status == 0 && facts.maps_memory) {
            AllocationProperties properties;
            properties.location.id = facts.ordinal;
            status = driver.granularity(&facts.granule_bytes, &properties, kRecommendedGranularity);
        }
        devices.push_back(std::move(facts));
    }
    if (status != 0)
        return tl::unexpected(driver.error(status, driver.device_count.name(),
                                           "The GPUs cannot be listed",
                                           std::to_string(count) + " of them"));
    return devices;
}

Result<std::shared_ptr<SharedContext>> SharedContext::create(std::shared_ptr<const Driver> driver,
                                                             Ordinal device) {
    Context context = nullptr;
    if (const Status status = driver->primary_context_retain(&context, device); status != 0)
        return tl::unexpected(driver->error(status, driver->primary_context_retain.name(),
                                            "The GPU cannot be opened",
                                            "device " + std::to_string(device)));
    const std::shared_ptr<SharedContext> shared(
        new SharedContext(std::move(driver), device, context));
    if (const Status status = shared->make_current(); status != 0)
        return tl::unexpected(
            shared->driver().error(status, shared->driver().context_set_current.name(),
                                   "The GPU cannot be opened", "device " + std::to_string(device)));
    return shared;
}

SharedContext::~SharedContext() {
    // Nobody could act on an error here; after a lost context it is expected.
    (void)driver_->primary_context_release(device_);
}

}  // namespace granary::gpu::cuda

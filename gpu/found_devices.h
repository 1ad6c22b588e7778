// SPDX-License-Identifier: GPL-3.0-or-later
// What a machine could compute on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tl/expected.hpp>

namespace granary::gpu {

struct FoundDevice {
    std::string id;            // "cuda:0", "host"; empty: it cannot be used
    std::string name;          // "NVIDIA GeForce RTX 3060"
    uint64_t total_bytes = 0;  // of its memory; 0: not known
    // Of one that cannot be used the reason ("this version has no HIP kernels"), of others what to
    // know of it; may be empty then.
    std::string note;
    bool usable() const { return !id.empty(); }
};

// Every GPU that the machine shows, those that can be used first, and the processor at the end. The
// drivers of GPUs are loaded and asked, which may take a second; no device is opened.
std::vector<FoundDevice> found_devices();

// A GPU as NVIDIA's driver names it.
struct CudaGpu {
    std::string bus_id;  // "0000:01:00.0"
    FoundDevice device;
};
// All of them in the driver's order, or for people why none can be used.
tl::expected<std::vector<CudaGpu>, std::string> cuda_gpus();

// found_devices() with what the driver says, and /proc, /sys and /usr looked for under `root`: a
// made-up tree in tests.
std::vector<FoundDevice> found_devices_in(
    const std::string& root, const tl::expected<std::vector<CudaGpu>, std::string>& cuda);

}  // namespace granary::gpu

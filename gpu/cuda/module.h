// SPDX-License-Identifier: GPL-3.0-or-later
// Compiled device code, loaded into a context, and its kernels found by name.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "gpu/cuda/driver.h"

namespace granary::gpu::cuda {

class Module {
  public:
    // `code` as compiled for several architectures together; the driver takes the one that fits.
    // The context is the calling thread's current one, and must live longer than the module.
    // Errors: unsupported where no architecture fits, else the driver's.
    static Result<std::unique_ptr<Module>> load(std::shared_ptr<const Driver> driver,
                                                std::span<const std::byte> code);
    ~Module();
    Module(const Module&) = delete;
    Module& operator=(const Module&) = delete;

    // A kernel declared extern "C" under that name. Errors: the driver's.
    Result<Function> function(const char* name) const;

  private:
    Module(std::shared_ptr<const Driver> driver, ModuleHandle module)
        : driver_(std::move(driver)), module_(module) {}

    std::shared_ptr<const Driver> driver_;
    ModuleHandle module_;
};

struct Size3 {
    unsigned x = 1, y = 1, z = 1;
};
// Queues a launch. The arguments' types must be the kernel's own: they are copied byte by byte.
template <class... Args>
Status launch(const Driver& driver, Function function, Size3 grid, Size3 block,
              unsigned shared_bytes, Stream stream, Args... args) {
    void* list[] = {static_cast<void*>(&args)..., nullptr};
    return driver.launch(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes,
                         stream, list, nullptr);
}

// The same for a kernel that waits itself for what it needs (early.cuh): it may begin while the one
// queued ahead of it still runs.
template <class... Args>
Status launch_early(const Driver& driver, Function function, Size3 grid, Size3 block,
                    unsigned shared_bytes, Stream stream, Args... args) {
    void* list[] = {static_cast<void*>(&args)..., nullptr};
    const LaunchAttribute early;
    const LaunchConfig config{
        {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared_bytes, stream, &early, 1};
    return driver.launch_with(&config, function, list, nullptr);
}

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/cuda/module.h"

#include <string>

namespace granary::gpu::cuda {

Result<std::unique_ptr<Module>> Module::load(std::shared_ptr<const Driver> driver,
                                             std::span<const std::byte> code) {
    ModuleHandle module = nullptr;
    const Status status = driver->module_load(&module, code.data());
    if (status == 0) return std::unique_ptr<Module>(new Module(std::move(driver), module));
    Error error = driver->error(status, driver->module_load.name(),
                                status == kNoBinary ? "This build has no code for this GPU"
                                                    : "The kernels cannot be loaded",
                                format_bytes(code.size()));
    if (status == kNoBinary) error.kind = ErrorKind::unsupported;
    return tl::unexpected(std::move(error));
}

Module::~Module() {
    // Nobody could act on an error here; after a lost context it is expected.
    (void)driver_->module_unload(module_);
}

Result<Function> Module::function(const char* name) const {
    Function function = nullptr;
    if (const Status status = driver_->module_function(&function, module_, name); status != 0)
        return tl::unexpected(
            driver_->error(status, driver_->module_function.name(), "A kernel is missing", name));
    return function;
}

}  // namespace granary::gpu::cuda

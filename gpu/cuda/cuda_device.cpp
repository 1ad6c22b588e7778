// SPDX-License-Identifier: GPL-3.0-or-later
#include <string>
#include <utility>

#include "gpu/cuda/device.h"
#include "gpu/cuda/device_code.h"
#include "gpu/cuda/kernels.h"
#include "gpu/cuda/limits.h"
#include "gpu/cuda/requirements.h"
#include "gpu/found_devices.h"

namespace granary::gpu {
namespace cuda {
namespace {

class CudaDevice final : public GpuMemory, public Device {
  public:
    static Result<std::unique_ptr<Device>> open(std::shared_ptr<const Driver> driver,
                                                const Options& options, CudaProducts products) {
        std::unique_ptr<CudaDevice> device(new CudaDevice);
        if (auto r = device->initialise(std::move(driver), options); !r)
            return tl::unexpected(r.error());
        auto kernels = load_kernels<CudaKernels>(*device, products);
        if (!kernels) return tl::unexpected(kernels.error());
        device->kernels_ = std::move(*kernels);
        return device;
    }
    ~CudaDevice() override {
        // Modules are unloaded from the current context; a lost one is no concern of theirs.
        if (kernels_) (void)context().make_current();
    }

    Kernels& kernels() override { return *kernels_; }
    Result<DeviceLimits> measure_limits(std::span<std::byte> scratch) override {
        const auto limits = cuda::measure_limits(*this, scratch);
        if (!limits) return tl::unexpected(limits.error());
        return DeviceLimits{limits->products(), limits->copy};
    }

  private:
    CudaDevice() = default;
    std::unique_ptr<Kernels> kernels_;
};

}  // namespace
}  // namespace cuda

namespace {

std::string reason_of(const cuda::Driver& driver) {
    return cuda::too_old(driver.version(), cuda::device_code_version(), cuda::installed_driver());
}

}  // namespace

tl::expected<std::vector<CudaGpu>, std::string> cuda_gpus() {
    if (cuda::device_code_version() == 0)
        return tl::unexpected(std::string("this build has no CUDA kernels"));
    const auto driver = cuda::open_driver();
    if (!driver) return tl::unexpected(cuda::why(driver.error()));
    const auto found = cuda::list_devices(**driver);
    if (!found) return tl::unexpected(cuda::why(found.error()));
    return cuda::judge(*found, reason_of(**driver), cuda::device_code_least());
}

Result<std::unique_ptr<Device>> make_cuda_device(const CudaDeviceOptions& options) {
    if (cuda::device_code_version() == 0)
        return fail(ErrorKind::unsupported, "This build has no CUDA kernels",
                    "no nvcc was there when it was built", "Use a build that has them");
    auto driver = cuda::open_driver();
    if (!driver) return tl::unexpected(driver.error());
    const std::string reason = reason_of(**driver);
    if (!reason.empty())
        return fail(ErrorKind::unsupported, "NVIDIA's driver is too old", reason,
                    "Update the driver");
    return cuda::CudaDevice::open(std::move(*driver), {options.ordinal, options.granule_bytes},
                                  options.products);
}

}  // namespace granary::gpu

// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/cuda/driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>

namespace granary::gpu::cuda {
namespace {

std::string last_dl_error() {
    const char* const text = dlerror();
    return text ? text : "no reason given";
}

const char* maker(Api api) {
    return api == Api::cuda ? "NVIDIA's driver" : "AMD's HIP runtime";
}

}  // namespace

Driver::~Driver() {
    // The library itself stays (RTLD_NODELETE): drivers keep threads that outlive their users.
    if (library_) dlclose(library_);
}

Result<void> Driver::look_up(const std::vector<std::string>& libraries) {
    std::string cause;
    for (const std::string& library : libraries) {
        library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (library_) break;
        if (!cause.empty()) cause += "; ";
        cause += last_dl_error();
    }
    if (!library_)
        return fail(ErrorKind::unsupported, std::string(maker(api_)) + " is not installed", cause);
    for (const Name& entry : names_) {
        *entry.function = dlsym(library_, entry.name);
        if (!*entry.function && entry.needed)
            return fail(ErrorKind::unsupported, std::string(maker(api_)) + " is too old",
                        std::string("it has no function ") + entry.name, "Update the driver");
    }
    return {};
}

Result<std::shared_ptr<Driver>> Driver::open(Api api, const std::vector<std::string>& libraries) {
    const std::shared_ptr<Driver> driver(new Driver(api));
    if (auto found = driver->look_up(libraries); !found) return tl::unexpected(found.error());
    if (const Status status = driver->init(0); status != 0)
        return fail(ErrorKind::unsupported,
                    status == kNoDevice ? std::string(maker(api)) + " finds no GPU"
                                        : std::string(maker(api)) + " does not start",
                    driver->name_of(status));
    // A driver that starts answers this; without an answer messages would lack the number.
    (void)driver->driver_version(&driver->version_);
    return driver;
}

Result<std::shared_ptr<Driver>> open_driver() {
    return Driver::open(Api::cuda, {"libcuda.so.1"});
}

std::string Driver::name_of(Status status) const {
    const char* name = nullptr;
    if (error_name(status, &name) != 0 || !name) name = "unknown error";
    return std::string(name) + " (" + std::to_string(status) + ")";
}

bool Driver::is_lost(Status status) {
    // Deinitialised, context destroyed or invalid, uncorrectable memory or link, and whatever a
    // kernel did that ends its context: addresses, time, asserts, instructions, launch failure.
    constexpr std::array kLost{4,   201, 214, 220, 226, 700, 702, 709, 710,
                               714, 715, 716, 717, 718, 719, 721, 999};
    return std::find(kLost.begin(), kLost.end(), status) != kLost.end();
}

Error Driver::error(Status status, std::string_view function, std::string what,
                    std::string detail) const {
    if (!detail.empty()) detail += ", ";
    detail += name_of(status) + " from " + std::string(function);
    if (is_lost(status))
        return {ErrorKind::device_lost, std::move(what), std::move(detail),
                "The driver gives this process no new context: restart Granary"};
    if (status == kOutOfMemory)
        return {ErrorKind::out_of_memory, std::move(what), std::move(detail),
                "Close other programs that use the GPU or choose smaller settings"};
    return {ErrorKind::device, std::move(what), std::move(detail), {}};
}

Status Driver::copy_async(void* to, const void* from, size_t bytes, Stream stream) const {
    constexpr int kFromAddresses = 4;  // hipMemcpyDefault
    if (api_ == Api::hip) return copy_hip_(to, from, bytes, kFromAddresses, stream);
    return copy_cuda_(reinterpret_cast<Address>(to), reinterpret_cast<Address>(from), bytes,
                      stream);
}

Status Driver::copy_all_async(const Address* to, const Address* from, const size_t* bytes,
                              size_t count, Stream stream) const {
    const CopyAttributes attributes;
    constexpr size_t kAllFrom = 0;  // of the copies, the first that they are for
    return copy_batch_(to, from, bytes, count, &attributes, &kAllFrom, 1, stream);
}

Status Driver::allow_shared_memory(Function function, size_t bytes) const {
    constexpr int kMostDynamicSharedBytes = 8;
    if (api_ == Api::hip) return 0;
#ifdef GRANARY_CUDA_AS_TURING
    constexpr Status kInvalidValue = 1;
    if (bytes > 64 << 10) return kInvalidValue;
#endif
    return function_set_attribute_(function, kMostDynamicSharedBytes, static_cast<int>(bytes));
}

}  // namespace granary::gpu::cuda

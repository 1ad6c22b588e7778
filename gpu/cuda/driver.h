// SPDX-License-Identifier: GPL-3.0-or-later
// The interface of a GPU's driver, looked up in the driver's own library when the program runs: it
// starts on machines without one, and needs no vendor's headers to be built. NVIDIA's driver
// interface and AMD's HIP have the same functions under two names, with the same arguments and
// structures, so one table serves both; where they differ, the difference stands here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/error.h"

namespace granary::gpu::cuda {

enum class Api : uint8_t { cuda, hip };

using Status = int;        // 0: success. The numbers below are the same in both interfaces
using Address = uint64_t;  // of device memory; HIP has a pointer of the same size
using Ordinal = int;       // number of a device
using Granule = uint64_t;  // handle of a piece of device memory
using Context = struct ContextTag*;
using Stream = struct StreamTag*;
using Event = struct EventTag*;
using ModuleHandle = struct ModuleTag*;
using Function = struct FunctionTag*;
using Graph = struct GraphTag*;
using GraphExec = struct GraphExecTag*;

inline constexpr Status kOutOfMemory = 2;
inline constexpr Status kNoDevice = 100;
inline constexpr Status kNoBinary = 209;
inline constexpr Status kIllegalAddress = 700;

// Where memory lies: type 1 is a device.
struct Location {
    int type = 1;
    Ordinal id = 0;
};
struct AllocationProperties {
    int type = 1;          // pinned: the only kind there is
    int handle_types = 0;  // not shared with other processes
    Location location;
    void* windows_attributes = nullptr;
    unsigned char flags[8] = {};
};
struct Access {
    Location location;
    int flags = 3;  // read and write
};
static_assert(sizeof(AllocationProperties) == 32 && sizeof(Access) == 12);

// Of copies that are given at once: each source is read in the stream's order.
struct CopyAttributes {
    int order = 1;
    Location from{0, 0}, to{0, 0};  // what they are follows from the addresses
    unsigned flags = 0;
};
static_assert(sizeof(CopyAttributes) == 24);

// A launch with attributes, of which one is used here: number 6 lets a kernel begin before the one
// queued ahead of it has ended.
struct LaunchAttribute {
    int id = 6;
    int unused = 0;
    int value[16] = {1};
};
struct LaunchConfig {
    unsigned grid[3], block[3], shared_bytes;
    Stream stream;
    const LaunchAttribute* attributes;
    unsigned attribute_count;
};
static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfig) == 56);

// Arguments named by number in the calls below.
inline constexpr int kPtxVersion = 5;  // of a function: 90 where it was compiled for 9.0
inline constexpr int kSharedPerProcessor = 81, kSharedPerBlock = 97;  // bytes, of a device
inline constexpr int kRecommendedGranularity = 1;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostPortable = 1, kHostMapped = 2, kHostReadOnly = 8;
inline constexpr unsigned kRegisterReadOnly = 8;  // HIP ignores it
inline constexpr int kCaptureThreadLocal = 1;

// Called with a function's name instead of each call, where set; another status than 0 is answered
// in the function's place. For checks of what happens when calls fail.
using Interceptor = std::function<Status(std::string_view name)>;

class Driver {
    struct Name {
        const char* name;
        void** function;
        bool needed;
    };

  public:
    // One function of the library: called as the function itself.
    template <class... Args>
    class Entry {
      public:
        Entry(Driver& driver, const char* cuda, const char* hip, bool needed = true)
            : interceptor_(&driver.interceptor), name_(driver.api_ == Api::cuda ? cuda : hip) {
            if (name_)
                driver.names_.push_back({name_, reinterpret_cast<void**>(&function_), needed});
        }
        Entry(const Entry&) = delete;
        Entry& operator=(const Entry&) = delete;

        Status operator()(Args... args) const {
            if (*interceptor_)
                if (const Status status = (*interceptor_)(name_); status != 0) return status;
            return function_(args...);
        }
        std::string_view name() const { return name_; }
        bool is_there() const { return function_ != nullptr; }

      private:
        const Interceptor* interceptor_;
        const char* name_;  // null: not of this interface
        Status (*function_)(Args...) = nullptr;
    };

    // Opens `library` and finds every function. Errors: unsupported when there is no such library,
    // when it lacks a function, or when the driver does not start, with the reason.
    static Result<std::shared_ptr<Driver>> open(Api api, const std::vector<std::string>& libraries);
    ~Driver();
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;

    Api api() const { return api_; }
    // Of the interface, as the driver says: 13000 is 13.0.
    int version() const { return version_; }
    // "CUDA_ERROR_OUT_OF_MEMORY (2)".
    std::string name_of(Status status) const;
    // The error that `status` stands for: out_of_memory, device_lost where no later call in the
    // same context can succeed, else device. Its detail is "DETAIL, NAME (NUMBER) from FUNCTION".
    Error error(Status status, std::string_view function, std::string what,
                std::string detail = {}) const;
    static bool is_lost(Status status);

    // Copies between any two of host and device; which is which follows from the addresses.
    Status copy_async(void* to, const void* from, size_t bytes, Stream stream) const;
    // Many at once. Drivers before CUDA 13.0, and HIP, do not take them.
    bool copies_at_once() const { return copy_batch_.is_there(); }
    Status copy_all_async(const Address* to, const Address* from, const size_t* bytes, size_t count,
                          Stream stream) const;
    // Lets launches of `function` ask for this much shared memory, where that needs to be allowed.
    Status allow_shared_memory(Function function, size_t bytes) const;

  private:
    explicit Driver(Api api) : api_(api) {}
    Result<void> look_up(const std::vector<std::string>& libraries);

    // Before the entries, whose constructors use them.
    Api api_;
    std::vector<Name> names_;
    void* library_ = nullptr;
    int version_ = 0;

  public:
    Interceptor interceptor;

    // ---- devices ----------------------------------------------------------------------------
    Entry<unsigned> init{*this, "cuInit", "hipInit"};
    Entry<int*> driver_version{*this, "cuDriverGetVersion", "hipDriverGetVersion"};
    Entry<Status, const char**> error_name{*this, "cuGetErrorName", "hipDrvGetErrorName"};
    Entry<int*> device_count{*this, "cuDeviceGetCount", "hipGetDeviceCount"};
    Entry<Ordinal*, int> device_get{*this, "cuDeviceGet", "hipDeviceGet"};
    Entry<char*, int, Ordinal> device_name{*this, "cuDeviceGetName", "hipDeviceGetName"};
    Entry<char*, int, Ordinal> device_bus_id{*this, "cuDeviceGetPCIBusId", "hipDeviceGetPCIBusId"};
    Entry<size_t*, Ordinal> device_total_memory{*this, "cuDeviceTotalMem_v2", "hipDeviceTotalMem"};
    Entry<int*, int, Ordinal> device_attribute{*this, "cuDeviceGetAttribute",
                                               "hipDeviceGetAttribute"};

    // ---- contexts ---------------------------------------------------------------------------
    Entry<Context*, Ordinal> primary_context_retain{*this, "cuDevicePrimaryCtxRetain",
                                                    "hipDevicePrimaryCtxRetain"};
    Entry<Ordinal> primary_context_release{*this, "cuDevicePrimaryCtxRelease_v2",
                                           "hipDevicePrimaryCtxRelease"};
    Entry<Context> context_set_current{*this, "cuCtxSetCurrent", "hipCtxSetCurrent"};
    Entry<> context_synchronize{*this, "cuCtxSynchronize", "hipDeviceSynchronize"};

    // ---- device memory ----------------------------------------------------------------------
    Entry<size_t*, size_t*> memory_info{*this, "cuMemGetInfo_v2", "hipMemGetInfo"};  // free, total
    Entry<size_t*, const AllocationProperties*, int> granularity{
        *this, "cuMemGetAllocationGranularity", "hipMemGetAllocationGranularity"};
    Entry<Address*, size_t, size_t, Address, unsigned long long> address_reserve{
        *this, "cuMemAddressReserve", "hipMemAddressReserve"};  // bytes, alignment, wish, 0
    Entry<Address, size_t> address_free{*this, "cuMemAddressFree", "hipMemAddressFree"};
    Entry<Granule*, size_t, const AllocationProperties*, unsigned long long> granule_create{
        *this, "cuMemCreate", "hipMemCreate"};
    Entry<Granule> granule_release{*this, "cuMemRelease", "hipMemRelease"};
    Entry<Address, size_t, size_t, Granule, unsigned long long> map{
        *this, "cuMemMap", "hipMemMap"};  // at, bytes, offset 0, granule, 0
    Entry<Address, size_t> unmap{*this, "cuMemUnmap", "hipMemUnmap"};
    Entry<Address, size_t, const Access*, size_t> set_access{*this, "cuMemSetAccess",
                                                             "hipMemSetAccess"};

    // ---- page-locked host memory --------------------------------------------------------------
    Entry<void**, size_t, unsigned> host_alloc{*this, "cuMemHostAlloc", "hipHostMalloc"};
    Entry<void*> host_free{*this, "cuMemFreeHost", "hipHostFree"};
    Entry<void*, size_t, unsigned> host_register{*this, "cuMemHostRegister_v2", "hipHostRegister"};
    Entry<void*> host_unregister{*this, "cuMemHostUnregister", "hipHostUnregister"};
    Entry<Address*, void*, unsigned> host_device_address{*this, "cuMemHostGetDevicePointer_v2",
                                                         "hipHostGetDevicePointer"};

    // ---- streams and events -------------------------------------------------------------------
    Entry<Stream*, unsigned> stream_create{*this, "cuStreamCreate", "hipStreamCreateWithFlags"};
    Entry<Stream> stream_destroy{*this, "cuStreamDestroy_v2", "hipStreamDestroy"};
    Entry<Stream> stream_synchronize{*this, "cuStreamSynchronize", "hipStreamSynchronize"};
    Entry<Stream, Event, unsigned> stream_wait{*this, "cuStreamWaitEvent", "hipStreamWaitEvent"};
    Entry<Event*, unsigned> event_create{*this, "cuEventCreate", "hipEventCreateWithFlags"};
    Entry<Event> event_destroy{*this, "cuEventDestroy_v2", "hipEventDestroy"};
    Entry<Event, Stream> event_record{*this, "cuEventRecord", "hipEventRecord"};
    Entry<Event> event_synchronize{*this, "cuEventSynchronize", "hipEventSynchronize"};
    Entry<Event> event_query{*this, "cuEventQuery", "hipEventQuery"};
    Entry<float*, Event, Event> event_elapsed{*this, "cuEventElapsedTime", "hipEventElapsedTime"};
    Entry<Address, unsigned char, size_t, Stream> fill_async{*this, "cuMemsetD8Async",
                                                             "hipMemsetD8Async"};

    // Describes device memory of up to five dimensions to the tensor copy engine: description (128
    // bytes), element type, dimensions, address, sizes, strides in bytes (from the second on), box,
    // element steps, interleaving, swizzle, cache and bounds by number.
    Entry<void*, int, unsigned, void*, const uint64_t*, const uint64_t*, const uint32_t*,
          const uint32_t*, int, int, int, int>
        tensor_map_encode{*this, "cuTensorMapEncodeTiled", nullptr};

    // ---- kernels and graphs ---------------------------------------------------------------------
    Entry<ModuleHandle*, const void*> module_load{*this, "cuModuleLoadData", "hipModuleLoadData"};
    Entry<ModuleHandle> module_unload{*this, "cuModuleUnload", "hipModuleUnload"};
    Entry<Function*, ModuleHandle, const char*> module_function{*this, "cuModuleGetFunction",
                                                                "hipModuleGetFunction"};
    Entry<int*, int, Function> function_attribute{*this, "cuFuncGetAttribute",
                                                  "hipFuncGetAttribute"};
    Entry<Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream,
          void**, void**>
        launch{*this, "cuLaunchKernel", "hipModuleLaunchKernel"};  // grid, block, shared bytes
    Entry<const LaunchConfig*, Function, void**, void**> launch_with{*this, "cuLaunchKernelEx",
                                                                     nullptr};
    Entry<Stream, int> capture_begin{*this, "cuStreamBeginCapture_v2", "hipStreamBeginCapture"};
    Entry<Stream, Graph*> capture_end{*this, "cuStreamEndCapture", "hipStreamEndCapture"};
    Entry<GraphExec*, Graph, unsigned long long> graph_instantiate{
        *this, "cuGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags"};
    Entry<GraphExec, Stream> graph_upload{*this, "cuGraphUpload", "hipGraphUpload"};
    Entry<GraphExec, Stream> graph_launch{*this, "cuGraphLaunch", "hipGraphLaunch"};
    Entry<GraphExec> graph_exec_destroy{*this, "cuGraphExecDestroy", "hipGraphExecDestroy"};
    Entry<Graph> graph_destroy{*this, "cuGraphDestroy", "hipGraphDestroy"};

  private:
    // HIP wants to be told what a copy goes between, and needs no leave for shared memory.
    Entry<Address, Address, size_t, Stream> copy_cuda_{*this, "cuMemcpyAsync", nullptr};
    Entry<void*, const void*, size_t, int, Stream> copy_hip_{*this, nullptr, "hipMemcpyAsync"};
    Entry<const Address*, const Address*, const size_t*, size_t, const CopyAttributes*,
          const size_t*, size_t, Stream>
        copy_batch_{*this, "cuMemcpyBatchAsync_v2", nullptr, false};
    Entry<Function, int, int> function_set_attribute_{*this, "cuFuncSetAttribute", nullptr};
};

// NVIDIA's driver of this machine.
Result<std::shared_ptr<Driver>> open_driver();

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// A driver library without a GPU: enough of NVIDIA's interface for the memory layer and its
// self-check to run where there is none. Device memory is one file in RAM, work is done at once,
// and the rules are the driver's: memory is used only where it is mapped and access is set, whole
// mappings are unmapped, and a kernel that breaks this ends the context. Kernels are those of the
// self-check, known by name.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gpu/cuda/driver.h"
#include "gpu/cuda/pattern.h"

// A fault that the driver is to have, for tests of the checks themselves.
extern "C" {
enum FakeCudaFault : int { kSound, kLeaks, kMixesUp, kHalfAccess, kGrows } fake_cuda_fault = kSound;
}

namespace {

using namespace granary::gpu::cuda;

constexpr size_t kGranuleBytes = 2 << 20, kTotalBytes = 512 << 20, kContextBytes = 20 << 20;
constexpr Status kInvalid = 1, kNotFound = 500, kNotSupported = 801;

struct Mapping {
    size_t bytes = 0;
    Granule granule = 0;
    bool access = false;
};
enum class Kernel : uintptr_t { write_pattern = 1, count_wrong };
struct Launch {
    Kernel kernel;
    uint64_t* words;
    uint64_t count, seed;
    unsigned long long* wrong;
};

// The state of the one card.
struct Machine {
    int file = memfd_create("fake-card", MFD_CLOEXEC);
    std::map<Address, size_t> reserved;
    std::map<Address, Mapping> mappings;
    std::map<Granule, size_t> handles;  // -> piece of the file
    std::set<size_t> free_pieces;
    size_t pieces = 0;
    Granule next_handle = 1;
    std::set<void*> host;
    int users = 0;
    Status lost = 0;
    using Launches = std::vector<Launch>;
    std::map<void*, std::unique_ptr<Launches>> graphs;
    Launches* capturing = nullptr;  // one of them
    std::set<void*> objects;        // streams, events, modules
    size_t lost_bytes = 0;          // by a fault
} machine;

template <class T>
T new_object() {
    void* const object = std::malloc(16);
    machine.objects.insert(object);
    return static_cast<T>(object);
}
template <class T>
Status free_object(T object) {
    if (machine.objects.erase(object) == 0) return kInvalid;
    std::free(object);
    return 0;
}

Machine::Launches* new_graph(const Machine::Launches& launches) {
    auto graph = std::make_unique<Machine::Launches>(launches);
    Machine::Launches* const key = graph.get();
    machine.graphs[key] = std::move(graph);
    return key;
}

size_t used_bytes() {
    return machine.handles.size() * kGranuleBytes + machine.lost_bytes +
           (machine.users > 0 ? kContextBytes : 0);
}

bool usable(const void* at, size_t bytes) {
    auto address = reinterpret_cast<Address>(at);
    const Address end = address + bytes;
    const bool on_card =
        std::any_of(machine.reserved.begin(), machine.reserved.end(), [&](const auto& range) {
            return address >= range.first && address < range.first + range.second;
        });
    if (!on_card) return true;  // host memory
    while (address < end) {
        auto next = machine.mappings.upper_bound(address);
        if (next == machine.mappings.begin()) return false;
        const auto& [base, mapping] = *--next;
        if (address >= base + mapping.bytes || !mapping.access) return false;
        address = base + mapping.bytes;
    }
    return true;
}

Status run(const Launch& launch) {
    if (!usable(launch.words, launch.count * 8)) return machine.lost = kIllegalAddress;
    for (uint64_t i = 0; i < launch.count; ++i) {
        const uint64_t word = granary::gpu::pattern_word(launch.seed, i);
        if (launch.kernel == Kernel::write_pattern)
            launch.words[i] = word;
        else
            *launch.wrong += launch.words[i] != word;
    }
    return 0;
}

}  // namespace

extern "C" {

// As a new process would find the card: a lost context is lost for the old one's whole life.
void fake_cuda_restart() {
    machine.lost = 0;
}

Status cuInit(unsigned) {
    return 0;
}
Status cuDriverGetVersion(int* version) {
    *version = 13000;
    return 0;
}
Status cuGetErrorName(Status status, const char** name) {
    *name = status == kOutOfMemory      ? "CUDA_ERROR_OUT_OF_MEMORY"
            : status == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                        : "CUDA_ERROR_OTHER";
    return 0;
}
Status cuDeviceGetCount(int* count) {
    *count = 1;
    return 0;
}
Status cuDeviceGet(Ordinal* device, int number) {
    *device = number;
    return number == 0 ? 0 : kInvalid;
}
Status cuDeviceGetName(char* name, int bytes, Ordinal) {
    std::strncpy(name, "Card of the tests", static_cast<size_t>(bytes));
    return 0;
}
Status cuDeviceGetPCIBusId(char* name, int bytes, Ordinal) {
    std::strncpy(name, "0000:01:00.0", static_cast<size_t>(bytes));
    return 0;
}
Status cuDeviceTotalMem_v2(size_t* bytes, Ordinal) {
    *bytes = kTotalBytes;
    return 0;
}
Status cuDeviceGetAttribute(int* value, int attribute, Ordinal) {
    const std::map<int, int> values{{75, 8},  {76, 6},       {16, 80},      {18, 0},  {17, 1},
                                    {102, 1}, {13, 1665000}, {36, 9501000}, {37, 384}};
    if (!values.contains(attribute)) return kInvalid;
    *value = values.at(attribute);
    return 0;
}

Status cuDevicePrimaryCtxRetain(Context* context, Ordinal) {
    if (machine.lost) return machine.lost;
    ++machine.users;
    *context = reinterpret_cast<Context>(&machine);
    return 0;
}
Status cuDevicePrimaryCtxRelease_v2(Ordinal) {
    if (machine.users == 0) return kInvalid;
    if (--machine.users > 0) return 0;
    machine.lost_bytes = 0;  // what was left behind goes with the context
    for (const auto& [address, mapping] : machine.mappings)
        mmap(reinterpret_cast<void*>(address), mapping.bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    machine.mappings.clear();
    for (const auto& [handle, piece] : machine.handles) machine.free_pieces.insert(piece);
    machine.handles.clear();
    for (const auto& [address, bytes] : machine.reserved)
        munmap(reinterpret_cast<void*>(address), bytes);
    machine.reserved.clear();
    machine.graphs.clear();
    machine.capturing = nullptr;
    for (void* object : machine.objects) std::free(object);
    machine.objects.clear();
    for (void* memory : machine.host) std::free(memory);
    machine.host.clear();
    return 0;
}
Status cuCtxSetCurrent(Context context) {
    return context == reinterpret_cast<Context>(&machine) && machine.users > 0 ? 0 : kInvalid;
}
Status cuCtxSynchronize() {
    return machine.lost;
}

Status cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
    *free_bytes = kTotalBytes - used_bytes();
    *total = kTotalBytes;
    return machine.lost;
}
Status cuMemGetAllocationGranularity(size_t* bytes, const AllocationProperties*, int) {
    *bytes = kGranuleBytes;
    return 0;
}
Status cuMemAddressReserve(Address* at, size_t bytes, size_t alignment, Address,
                           unsigned long long) {
    if (machine.lost) return machine.lost;
    void* const span = mmap(nullptr, bytes + alignment, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (span == MAP_FAILED) return kOutOfMemory;
    const auto address = reinterpret_cast<Address>(span);
    const Address first = (address + alignment - 1) / alignment * alignment;
    if (first > address) munmap(span, first - address);
    munmap(reinterpret_cast<void*>(first + bytes), address + alignment - first);
    machine.reserved[first] = bytes;
    *at = first;
    return 0;
}
Status cuMemAddressFree(Address at, size_t bytes) {
    const auto found = machine.reserved.find(at);
    if (found == machine.reserved.end() || found->second != bytes) return kInvalid;
    const auto inside = machine.mappings.lower_bound(at);
    if (inside != machine.mappings.end() && inside->first < at + bytes) return kInvalid;
    munmap(reinterpret_cast<void*>(at), bytes);
    machine.reserved.erase(found);
    return 0;
}
Status cuMemCreate(Granule* handle, size_t bytes, const AllocationProperties* properties,
                   unsigned long long flags) {
    if (machine.lost) return machine.lost;
    if (bytes != kGranuleBytes || properties->type != 1 || properties->location.type != 1 || flags)
        return kInvalid;
    if (used_bytes() + bytes > kTotalBytes) return kOutOfMemory;
    if (machine.free_pieces.empty()) {
        machine.free_pieces.insert(machine.pieces++);
        if (ftruncate(machine.file, static_cast<off_t>(machine.pieces * kGranuleBytes)) != 0)
            return kOutOfMemory;
    }
    *handle = machine.next_handle++;
    machine.handles[*handle] = *machine.free_pieces.begin();
    machine.free_pieces.erase(machine.free_pieces.begin());
    return 0;
}
Status cuMemRelease(Granule handle) {
    const auto found = machine.handles.find(handle);
    if (found == machine.handles.end()) return kInvalid;
    for (const auto& [address, mapping] : machine.mappings)
        if (mapping.granule == handle) return kInvalid;  // the layer never does this
    machine.free_pieces.insert(found->second);
    machine.handles.erase(found);
    if (fake_cuda_fault == kLeaks) machine.lost_bytes += kGranuleBytes;
    return 0;
}
Status cuMemMap(Address at, size_t bytes, size_t offset, Granule handle, unsigned long long flags) {
    if (machine.lost) return machine.lost;
    const bool reserved =
        std::any_of(machine.reserved.begin(), machine.reserved.end(), [&](const auto& range) {
            return at >= range.first && at + bytes <= range.first + range.second;
        });
    if (!reserved || offset || flags || bytes != kGranuleBytes || !machine.handles.contains(handle))
        return kInvalid;
    for (const auto& [address, mapping] : machine.mappings)
        if (mapping.granule == handle || (address < at + bytes && at < address + mapping.bytes))
            return kInvalid;
    machine.mappings[at] = {bytes, handle, false};
    return 0;
}
Status cuMemSetAccess(Address at, size_t bytes, const Access* access, size_t count) {
    if (machine.lost) return machine.lost;
    if (count != 1 || access->flags != 3) return kInvalid;
    for (Address place = at; place < at + bytes; place += kGranuleBytes) {
        const auto found = machine.mappings.find(place);
        if (found == machine.mappings.end()) return kInvalid;
        size_t piece = machine.handles.at(found->second.granule);
        if (fake_cuda_fault == kMixesUp && place > at) --piece;
        if (fake_cuda_fault == kHalfAccess && place > at) continue;
        if (mmap(reinterpret_cast<void*>(place), kGranuleBytes, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED, machine.file,
                 static_cast<off_t>(piece * kGranuleBytes)) == MAP_FAILED)
            return kOutOfMemory;
        found->second.access = true;
    }
    return 0;
}
Status cuMemUnmap(Address at, size_t bytes) {
    for (Address place = at; place < at + bytes; place += kGranuleBytes)
        if (!machine.mappings.contains(place)) return kInvalid;
    for (Address place = at; place < at + bytes; place += kGranuleBytes)
        machine.mappings.erase(place);
    mmap(reinterpret_cast<void*>(at), bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return 0;
}

Status cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
    if (machine.lost) return machine.lost;
    *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    machine.host.insert(*memory);
    return *memory ? 0 : kOutOfMemory;
}
Status cuMemFreeHost(void* memory) {
    if (machine.host.erase(memory) == 0) return kInvalid;
    std::free(memory);
    return 0;
}
Status cuMemHostRegister_v2(void*, size_t, unsigned) {
    return machine.lost;
}
Status cuMemHostUnregister(void*) {
    return machine.lost;
}
Status cuMemHostGetDevicePointer_v2(Address* at, void* memory, unsigned) {
    *at = reinterpret_cast<Address>(memory);
    return 0;
}

Status cuStreamCreate(Stream* stream, unsigned) {
    *stream = new_object<Stream>();
    return machine.lost;
}
Status cuStreamDestroy_v2(Stream stream) {
    return free_object(stream);
}
Status cuStreamSynchronize(Stream stream) {
    return machine.objects.contains(stream) ? machine.lost : kInvalid;
}
Status cuStreamWaitEvent(Stream, Event event, unsigned) {
    return machine.objects.contains(event) ? machine.lost : kInvalid;
}
Status cuEventCreate(Event* event, unsigned) {
    *event = new_object<Event>();
    return machine.lost;
}
Status cuEventDestroy_v2(Event event) {
    return free_object(event);
}
Status cuEventRecord(Event event, Stream stream) {
    return machine.objects.contains(event) && machine.objects.contains(stream) ? machine.lost
                                                                               : kInvalid;
}
Status cuEventSynchronize(Event) {
    return machine.lost;
}
Status cuEventQuery(Event) {
    return machine.lost;
}
Status cuEventElapsedTime(float* milliseconds, Event, Event) {
    *milliseconds = 0;
    return machine.lost;
}
Status cuMemsetD8Async(Address to, unsigned char byte, size_t bytes, Stream) {
    if (machine.lost) return machine.lost;
    if (!usable(reinterpret_cast<void*>(to), bytes)) return kInvalid;
    std::memset(reinterpret_cast<void*>(to), byte, bytes);
    return 0;
}
Status cuMemcpyAsync(Address to, Address from, size_t bytes, Stream) {
    if (machine.lost) return machine.lost;
    void* const target = reinterpret_cast<void*>(to);
    const void* const source = reinterpret_cast<const void*>(from);
    if (!usable(target, bytes) || !usable(source, bytes)) return kInvalid;
    std::memmove(target, source, bytes);
    return 0;
}

Status cuTensorMapEncodeTiled(void*, int, unsigned, void*, const uint64_t*, const uint64_t*,
                              const uint32_t*, const uint32_t*, int, int, int, int) {
    return kNotSupported;  // as on cards without a tensor copy engine
}
Status cuModuleLoadData(ModuleHandle* module, const void*) {
    *module = new_object<ModuleHandle>();
    return machine.lost;
}
Status cuModuleUnload(ModuleHandle module) {
    return free_object(module);
}
Status cuModuleGetFunction(Function* function, ModuleHandle, const char* name) {
    const std::map<std::string, Kernel> kernels{{"write_pattern", Kernel::write_pattern},
                                                {"count_wrong", Kernel::count_wrong}};
    if (!kernels.contains(name)) return kNotFound;
    *function = reinterpret_cast<Function>(kernels.at(name));
    return 0;
}
Status cuFuncGetAttribute(int* value, int, Function) {
    *value = 0;
    return 0;
}
Status cuFuncSetAttribute(Function, int, int) {
    return 0;
}
Status cuLaunchKernel(Function function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      unsigned, Stream, void** arguments, void**) {
    if (machine.lost) return machine.lost;
    if (fake_cuda_fault == kGrows) machine.lost_bytes += 4096;
    Launch launch{static_cast<Kernel>(reinterpret_cast<uintptr_t>(function)),
                  *static_cast<uint64_t**>(arguments[0]), *static_cast<uint64_t*>(arguments[1]),
                  *static_cast<uint64_t*>(arguments[2]), nullptr};
    if (launch.kernel == Kernel::count_wrong)
        launch.wrong = *static_cast<unsigned long long**>(arguments[3]);
    if (machine.capturing)
        machine.capturing->push_back(launch);
    else
        (void)run(launch);  // asynchronous: whoever synchronizes learns of it
    return 0;
}
Status cuLaunchKernelEx(const LaunchConfig*, Function function, void** arguments, void**) {
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr);
}
Status cuStreamBeginCapture_v2(Stream, int) {
    if (machine.lost || machine.capturing) return machine.lost ? machine.lost : kInvalid;
    machine.capturing = new_graph({});
    return 0;
}
Status cuStreamEndCapture(Stream, Graph* graph) {
    if (!machine.capturing) return kInvalid;
    *graph = reinterpret_cast<Graph>(machine.capturing);
    machine.capturing = nullptr;
    return machine.lost;
}
Status cuGraphInstantiateWithFlags(GraphExec* exec, Graph graph, unsigned long long) {
    if (machine.lost) return machine.lost;
    *exec = reinterpret_cast<GraphExec>(new_graph(*machine.graphs.at(graph)));
    return 0;
}
Status cuGraphUpload(GraphExec, Stream) {
    return machine.lost;
}
Status cuGraphLaunch(GraphExec exec, Stream) {
    if (machine.lost) return machine.lost;
    for (const Launch& launch : *machine.graphs.at(exec)) (void)run(launch);
    return 0;
}
Status cuGraphExecDestroy(GraphExec exec) {
    return machine.graphs.erase(exec) == 1 ? 0 : kInvalid;
}
Status cuGraphDestroy(Graph graph) {
    return machine.graphs.erase(graph) == 1 ? 0 : kInvalid;
}

}  // extern "C"

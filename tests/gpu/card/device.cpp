// SPDX-License-Identifier: GPL-3.0-or-later
// What the driver says of the card, and its kernels.
#include <cstring>

#include "tests/gpu/card/kernels.h"
#include "tests/gpu/ptx/tensor_map.h"

using namespace granary::test::card;

extern "C" {

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
            : status == kLaunchFailed   ? "CUDA_ERROR_LAUNCH_FAILED"
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
    std::strncpy(name, facts().name, static_cast<size_t>(bytes));
    return 0;
}
Status cuDeviceGetPCIBusId(char* name, int bytes, Ordinal) {
    std::strncpy(name, "0000:01:00.0", static_cast<size_t>(bytes));
    return 0;
}
Status cuDeviceTotalMem_v2(size_t* bytes, Ordinal) {
    *bytes = facts().bytes;
    return 0;
}
Status cuDeviceGetAttribute(int* value, int attribute, Ordinal) {
    const std::map<int, int> values{{75, facts().capability / 10},
                                    {76, facts().capability % 10},
                                    {16, 80},
                                    {18, 0},
                                    {17, 1},
                                    {102, 1},
                                    {13, 1665000},
                                    {36, 9501000},
                                    {37, 384},
                                    {kSharedPerProcessor, facts().shared_bytes + 1024},
                                    {kSharedPerBlock, facts().shared_bytes}};
    if (!values.contains(attribute)) return kInvalid;
    *value = values.at(attribute);
    return 0;
}
Status cuTensorMapEncodeTiled(void* description, int type, unsigned dimensions, void* address,
                              const uint64_t* sizes, const uint64_t* strides, const uint32_t* box,
                              const uint32_t* steps, int interleaving, int swizzle, int, int) {
    using granary::test::ptx::TensorMap;
    constexpr int kFloat16 = 6, kSwizzle128 = 3;
    if (facts().capability < 90) return kNotSupported;
    if (type != kFloat16 || dimensions < 2 || dimensions > granary::test::ptx::kMostDimensions ||
        interleaving != 0 || swizzle != kSwizzle128)
        return kNotSupported;  // by this card
    TensorMap map{};
    map.address = reinterpret_cast<uintptr_t>(address);
    map.dimensions = static_cast<uint16_t>(dimensions);
    map.element_bytes = 2;
    for (unsigned d = 0; d < dimensions; ++d) {
        if (steps[d] != 1 || box[d] == 0 || box[d] > 256 || sizes[d] == 0) return kInvalid;
        if (d > 0 && strides[d - 1] % 16 != 0) return kInvalid;
        map.sizes[d] = sizes[d];
        map.box[d] = box[d];
        if (d > 0) map.strides[d - 1] = strides[d - 1];
    }
    if (map.address % 16 != 0) return kInvalid;
    std::memcpy(description, &map, sizeof map);
    return 0;
}

// Kernels are known by their names, whatever module they are asked of.
Status cuModuleLoadData(ModuleHandle* module, const void*) {
    *module = new_object<ModuleHandle>();
    return machine.lost;
}
Status cuModuleUnload(ModuleHandle module) {
    return free_object(module);
}
Status cuModuleGetFunction(Function* function, ModuleHandle, const char* name) {
    const Kernel* const kernel = find_kernel(name);
    if (!kernel) return kNotFound;
    *function = reinterpret_cast<Function>(const_cast<Kernel*>(kernel));
    return 0;
}
Status cuFuncGetAttribute(int* value, int attribute, Function function) {
    *value = attribute == kPtxVersion ? target_of(*reinterpret_cast<const Kernel*>(function)) : 0;
    return 0;
}
Status cuFuncSetAttribute(Function, int, int) {
    return 0;
}
}  // extern "C"

namespace {

Status launch_kernel(Function function, const std::array<uint32_t, 3>& grid,
                     const std::array<uint32_t, 3>& block, unsigned shared_bytes, bool early,
                     void** arguments) {
    if (machine.lost) return machine.lost;
    if (fake_cuda_fault == kGrows) machine.lost_bytes += 4096;
    return machine.give(launch(*reinterpret_cast<const Kernel*>(function), grid, block,
                               shared_bytes, early, arguments));
}

}  // namespace

extern "C" {

Status cuLaunchKernel(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                      Stream, void** arguments, void**) {
    return launch_kernel(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z},
                         shared_bytes, false, arguments);
}
Status cuLaunchKernelEx(const LaunchConfig* config, Function function, void** arguments, void**) {
    const LaunchAttribute one;
    const bool early = config->attribute_count == 1 && config->attributes[0].id == one.id &&
                       config->attributes[0].value[0] == 1;
    if (config->attribute_count != (early ? 1u : 0u)) return kInvalid;
    return launch_kernel(function, {config->grid[0], config->grid[1], config->grid[2]},
                         {config->block[0], config->block[1], config->block[2]},
                         config->shared_bytes, early, arguments);
}

}  // extern "C"

// SPDX-License-Identifier: GPL-3.0-or-later
// Kernels as compiled when the program was built, for every architecture together.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

// device_code: of the file `name`.cu; empty where this build was made without that compiler.
// device_code_least: the least compute capability that it is for, 80 for 8.0; 0 without any.
// device_code_version: of the CUDA compiler, 13000 for 13.0; 0 without one, and for HIP.
namespace granary::gpu::cuda {
std::span<const std::byte> device_code(std::string_view name);
int device_code_version();
int device_code_least();
}  // namespace granary::gpu::cuda
namespace granary::gpu::hip {
std::span<const std::byte> device_code(std::string_view name);
int device_code_version();
int device_code_least();
}  // namespace granary::gpu::hip

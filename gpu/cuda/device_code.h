// SPDX-License-Identifier: GPL-3.0-or-later
// Kernels as compiled when the program was built, for every architecture together.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

// The code of the file `name`.cu; empty where this build was made without that compiler.
namespace granary::gpu::cuda {
std::span<const std::byte> device_code(std::string_view name);
}
namespace granary::gpu::hip {
std::span<const std::byte> device_code(std::string_view name);
}

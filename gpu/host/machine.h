// SPDX-License-Identifier: GPL-3.0-or-later
// What this process may use of the machine: cores, memory, instructions. Containers are told apart
// from machines by their control groups, versions 1 and 2.
//
// `root` is where /proc and /sys are looked for: a made-up tree in tests.
#pragma once

#include <cstdint>
#include <string>

namespace granary::gpu::host {

// Cores that the process may run on and that its CPU quota pays for; at least 1.
unsigned usable_cores(const std::string& root = "");

struct MachineMemory {
    uint64_t total_bytes = 0;  // the machine's, or the limit of the control group if that is less
    uint64_t free_bytes = 0;   // that can be had without swapping or being killed
};
MachineMemory machine_memory(const std::string& root = "");

// "AMD EPYC 9354", "Intel Xeon Platinum 8480C"; "CPU" where the kernel does not say.
std::string cpu_name(const std::string& root = "");

// The widest vector instructions: "AVX-512", "AVX2", "SSE2", "NEON", "no vectors".
std::string vector_instructions();

}  // namespace granary::gpu::host

// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <string>
#include <vector>

#include "gpu/cuda/context.h"
#include "gpu/found_devices.h"

namespace granary::gpu::cuda {

// Why a driver that supports CUDA `supported` cannot run what a compiler of CUDA `built` made
// (13000 is 13.0), for people; empty when it can. `installed`: the driver's own version, "" where
// it is not known. Source: CUDA compatibility, by which machine code runs with every driver of its
// compiler's major version or a newer one.
std::string too_old(int supported, int built, const std::string& installed);

// "580.95.05": NVIDIA's driver as the running system has it, looked for under `root`; empty where
// there is none.
std::string installed_driver(const std::string& root = {});

// An error of opening a driver, in a few words: "NVIDIA's driver is not installed".
std::string why(const Error& error);

// Which of the driver's GPUs a build can use whose code is for compute capability `least` (80 is
// 8.0) and newer, and why not the others. `reason`: what too_old says.
std::vector<CudaGpu> judge(const std::vector<DeviceFacts>& found, const std::string& reason,
                           int least);

}  // namespace granary::gpu::cuda

// SPDX-License-Identifier: GPL-3.0-or-later
// First include of device code that both nvcc and hipcc compile. Kernels are extern "C", so that
// they are found by name.
#pragma once

#if defined(__HIP__)
#include <hip/hip_runtime.h>
#elif !defined(__CUDACC__)
#error "device code is compiled by nvcc or hipcc"
#endif

#include <cstddef>
#include <cstdint>

// SPDX-License-Identifier: GPL-3.0-or-later
// The attention and delta-net kernels as CudaKernels holds them.
#pragma once

#include <cstdint>

#include "gpu/cuda/driver.h"

namespace granary::gpu::cuda {

struct AttentionKernels {
    uint32_t processors = 0;
    bool fast_decode = false;  // those of `decode`: compute capability 8.0 and up

    // By format f16, int8, k8v4, q4; by heads of 64, 128, 256; by tiles of eight rows less one.
    Function decode[4][3][2] = {};
    Function decode_plain = nullptr, combine = nullptr;
    // By heads of 64, 128, 256; null where this GPU or build has none.
    Function prompt[3] = {}, prompt_wgmma[3] = {};
    Function prompt_plain = nullptr, fold = nullptr, widen = nullptr, finish = nullptr;
};

struct DeltaNetKernels {
    Function prepare = nullptr, chunk = nullptr, decode = nullptr, decode_norm = nullptr;
    Function prepare_mma = nullptr, convolve_mma = nullptr, tail = nullptr, chunk_mma = nullptr;
    uint32_t stages = 0;  // of chunk_mma; 0 where this GPU has too little shared memory
};

}  // namespace granary::gpu::cuda

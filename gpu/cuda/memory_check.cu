// SPDX-License-Identifier: GPL-3.0-or-later
// Kernels of the self-check: they write its pattern, and count what differs from it.
#include "gpu/cuda/pattern.h"

using granary::gpu::pattern_word;

// words: [count].
extern "C" __global__ void write_pattern(uint64_t* words, uint64_t count, uint64_t seed) {
    const uint64_t step = uint64_t(gridDim.x) * blockDim.x;
    for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
        words[i] = pattern_word(seed, i);
}

// Adds the number of words that are not the pattern's to *wrong.
extern "C" __global__ void count_wrong(const uint64_t* words, uint64_t count, uint64_t seed,
                                       unsigned long long* wrong) {
    const uint64_t step = uint64_t(gridDim.x) * blockDim.x;
    unsigned long long found = 0;
    for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
        found += words[i] != pattern_word(seed, i);
    if (found) atomicAdd(wrong, found);
}

// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstdlib>
#include <span>

#include "gpu/cuda/kernels.h"

namespace granary::gpu::cuda::test {

// CudaKernels with the operations that have no kernels yet, which no test may call.
class TestedKernels final : public CudaKernels {
  public:
    using CudaKernels::CudaKernels;
    void matmul(std::span<const Matmul>, const Activations&) override { std::abort(); }
    void expert_ffn(const ExpertShape&, const ExpertEntry*, std::span<const int32_t>, const Routes&,
                    const Activations&, const Activations&, void*) override {
        std::abort();
    }
};

}  // namespace granary::gpu::cuda::test

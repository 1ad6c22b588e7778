// SPDX-License-Identifier: GPL-3.0-or-later
// What this card can do at most, measured in the same run: every share refers to these.
#include <cstring>

#include "gpu/cuda/limits.h"
#include "tests/gpu/cuda_kernel_bench/bench.h"

namespace granary::gpu::cuda::bench {

void limits(Bench& bench) {
    const size_t mark = bench.mark();
    {
        constexpr size_t kBytes = size_t{4} << 30;
        const std::span scratch(bench.allocate<std::byte>(kBytes), kBytes);
        bench.fill(scratch.data(), 0x5a, kBytes);
        const CardLimits limits = must(measure_limits(bench.device(), scratch));
        bench.limit_mma = limits.mma / 1e12;
        bench.limit_f16 = limits.products() / 1e12;
        bench.limit_copy = limits.copy / 1e9;
        const auto add = [&](const char* what, const char* kernel, double tflops, double bytes) {
            if (tflops > 0 || bytes > 0) bench.add({"limit", what, kernel, 0, 0, tflops, bytes});
        };
        add("f16 products, f32 sums", "mma.sync", bench.limit_mma, 0);
        add("f16 products, f32 sums", "wgmma", limits.wgmma / 1e12, 0);
        add("8-bit products", "mma.sync", limits.int8 / 1e12, 0);
        add("device memory, read + written", "copy kernel", 0, bench.limit_copy);
    }
    {
        constexpr size_t kBytes = size_t{256} << 20;
        std::byte* const memory = bench.allocate<std::byte>(kBytes);
        const HostBuffer host = must(bench.device().page_locked(kBytes));
        std::memset(host.data.get(), 0x3c, kBytes);
        const auto copy = [&](const char* what, void* to, const void* from) {
            const auto time = bench.time([&] {
                bench.check(bench.driver().copy_async(to, from, kBytes, bench.stream()),
                            "cuMemcpyAsync");
            });
            const double rate = double(kBytes) / time.milliseconds * 1e-6;
            bench.add({"limit", what, "cuMemcpyAsync", time.milliseconds, time.spread, 0, rate});
            return rate;
        };
        bench.limit_link = copy("page-locked to device, 256 MiB", memory, host.data.get());
        copy("device to page-locked, 256 MiB", host.data.get(), memory);
    }
    bench.release(mark);
}

}  // namespace granary::gpu::cuda::bench

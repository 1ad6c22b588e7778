// SPDX-License-Identifier: GPL-3.0-or-later
// What this card can do at most, measured in the same run: every share refers to these.
#include <algorithm>
#include <cstring>

#include "tests/gpu/cuda_kernel_bench/bench.h"

namespace granary::gpu::cuda::bench {

void limits(Bench& bench) {
    const size_t mark = bench.mark();
    const auto processors = static_cast<uint32_t>(bench.facts().processors);
    float* const out = bench.allocate<float>(size_t{processors} * 4 * 256);

    {
        constexpr uint32_t kRounds = 20000;
        const Function kernel = bench.find("limits", "limit_mma");
        const uint32_t blocks = processors * 2;
        const auto time = bench.time([&] {
            bench.launch(kernel, {blocks, 1, 1}, 256, 0, kRounds, out);
        });
        const double flop = double(blocks) * 8 * kRounds * 16 * 4096;
        bench.limit_mma = flop / time.milliseconds * 1e-9;
        bench.add({"limit", "f16 products, f32 sums", "mma.sync", time.milliseconds, time.spread,
                   bench.limit_mma});
    }
    bench.limit_f16 = bench.limit_mma;
    if (const Function kernel = bench.find("limits", "limit_wgmma")) {
        constexpr uint32_t kRounds = 10000;
        const auto time = bench.time([&] {
            bench.launch(kernel, {processors, 1, 1}, 256, 40960, kRounds, out);
        });
        const double flop = double(processors) * 2 * kRounds * 4 * 524288;
        bench.limit_f16 = std::max(bench.limit_mma, flop / time.milliseconds * 1e-9);
        bench.add({"limit", "f16 products, f32 sums", "wgmma", time.milliseconds, time.spread,
                   bench.limit_f16});
    }
    {
        constexpr size_t kBytes = size_t{2} << 30;
        std::byte* const from = bench.allocate<std::byte>(kBytes);
        std::byte* const to = bench.allocate<std::byte>(kBytes);
        bench.fill(from, 0x5a, kBytes);
        const Function kernel = bench.find("limits", "limit_copy");
        const auto time = bench.time([&] {
            bench.launch(kernel, {processors * 16, 1, 1}, 256, 0, from, to, kBytes / 16);
        });
        bench.limit_copy = 2 * double(kBytes) / time.milliseconds * 1e-6;
        bench.add({"limit", "device memory, read + written", "copy kernel", time.milliseconds,
                   time.spread, 0, bench.limit_copy});
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

// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/cuda/limits.h"

#include <algorithm>

#include "gpu/cuda/device_code.h"
#include "gpu/cuda/module.h"

namespace granary::gpu::cuda {

Result<CardLimits> measure_limits(GpuMemory& device, std::span<std::byte> scratch) {
    constexpr int kRuns = 5;
    const size_t needed = size_t{2048} * device.facts().processors;
    if (scratch.size() < needed)
        return fail(ErrorKind::invalid_argument, "There is too little memory to measure in",
                    format_bytes(scratch.size()) + ", " + format_bytes(needed) + " are needed");
    const SharedContext& context = device.context();
    if (const Status status = context.make_current(); status != 0)
        return tl::unexpected(context.driver().error(
            status, context.driver().context_set_current.name(), "The GPU does not answer"));
    const auto module = Module::load(context.shared_driver(), device_code("limits"));
    if (!module) return tl::unexpected(module.error());
    const auto processors = static_cast<uint32_t>(device.facts().processors);
    auto* const out = reinterpret_cast<float*>(scratch.data());

    CardLimits limits;
    // Work a second of the quickest run.
    const auto measure = [&](double& rate, double work, auto&& queue) -> Result<void> {
        for (int run = 0; run < kRuns; ++run) {
            device.mark(0);
            device.note(queue(), context.driver().launch.name());
            device.mark(1);
            if (auto r = device.synchronize(StreamId::compute); !r) return r;
            const double seconds = device.seconds_between(0, 1);
            if (seconds > 0) rate = std::max(rate, work / seconds);
        }
        return {};
    };
    const auto launched = [&](Function function, uint32_t blocks, uint32_t shared, auto... args) {
        return launch(context.driver(), function, {blocks, 1, 1}, {256, 1, 1}, shared,
                      device.stream(StreamId::compute), args...);
    };

    const auto mma = (*module)->function("limit_mma");
    if (!mma) return tl::unexpected(mma.error());
    constexpr uint32_t kMmaRounds = 5000;
    if (auto r = measure(limits.mma, 2.0 * processors * 8 * kMmaRounds * 16 * 4096,
                         [&] { return launched(*mma, processors * 2, 0, kMmaRounds, out); });
        !r)
        return tl::unexpected(r.error());
    const auto int8 = (*module)->function("limit_mma_int8");
    if (!int8) return tl::unexpected(int8.error());
    if (auto r = measure(limits.int8, 2.0 * processors * 8 * kMmaRounds * 16 * 8192,
                         [&] { return launched(*int8, processors * 2, 0, kMmaRounds, out); });
        !r)
        return tl::unexpected(r.error());
    // Compute capability 9.0a alone has it.
    if (const auto wgmma = (*module)->function("limit_wgmma")) {
        constexpr uint32_t kRounds = 2500;
        if (auto r = measure(limits.wgmma, 2.0 * processors * kRounds * 4 * 524288,
                             [&] { return launched(*wgmma, processors, 40960, kRounds, out); });
            !r)
            return tl::unexpected(r.error());
    }
    const auto copy = (*module)->function("limit_copy");
    if (!copy) return tl::unexpected(copy.error());
    const size_t half = scratch.size() / 32 * 16;
    if (auto r = measure(limits.copy, 2.0 * static_cast<double>(half),
                         [&] {
                             return launched(*copy, processors * 16, 0,
                                             static_cast<const std::byte*>(scratch.data()),
                                             scratch.data() + half, half / 16);
                         });
        !r)
        return tl::unexpected(r.error());
    return limits;
}

}  // namespace granary::gpu::cuda

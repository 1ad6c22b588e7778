// SPDX-License-Identifier: GPL-3.0-or-later
// Experts gathered from page-locked memory by one kernel, against one asynchronous copy each.
#include "gpu/cuda/gather.h"

#include <cstring>
#include <string>

#include "tests/gpu/cuda_kernel_bench/bench.h"

namespace granary::gpu::cuda::bench {

void gather(Bench& bench) {
    // One expert of Qwen3.6-35B-A3B and of Qwen3-30B-A3B, all Q4_K.
    constexpr size_t kBytes[] = {1769472, 2654208};
    constexpr uint32_t kMost = 32;
    const size_t mark = bench.mark();
    const Function kernel = bench.find("gather", "gather_pieces");
    for (const size_t bytes : kBytes) {
        // Four sets in turn, so that no cache helps.
        constexpr uint32_t kSets = 4;
        const HostBuffer host = must(bench.device().page_locked(kSets * kMost * bytes));
        auto* const words = reinterpret_cast<uint64_t*>(host.data.get());
        in_parallel(kSets * kMost, [&](size_t expert) {
            Random random(expert);
            for (size_t i = 0; i < bytes / 8; ++i) words[expert * (bytes / 8) + i] = random.next();
        });
        std::byte* const memory = bench.allocate<std::byte>(kMost * bytes);
        std::vector<GatherPiece> pieces;
        for (uint32_t i = 0; i < kSets * kMost; ++i)
            pieces.push_back({host.data.get() + i * bytes, memory + i % kMost * bytes, bytes});
        GatherPiece* const table = bench.uploaded(pieces);

        for (const uint32_t count : {1u, 2u, 4u, 8u, 16u, 32u}) {
            const std::string what =
                std::to_string(count) + " experts of " + std::to_string(bytes) + " bytes";
            uint32_t set = 0;
            const auto line = [&](const std::string& name, const std::function<void()>& work) {
                const auto time = bench.time(work);
                const double rate = double(count * bytes) / time.milliseconds * 1e-6;
                bench.add({"gather", what, name, time.milliseconds, time.spread, 0, rate,
                           rate / bench.limit_link});
            };
            line("cuMemcpyAsync", [&] {
                set = (set + 1) % kSets;
                for (uint32_t i = 0; i < count; ++i) {
                    const GatherPiece& piece = pieces[set * kMost + i];
                    bench.check(bench.driver().copy_async(piece.to, piece.from, piece.bytes,
                                                          bench.stream()),
                                "cuMemcpyAsync");
                }
            });
            for (const uint32_t blocks : {4u, 8u, 16u, 32u, 64u}) {
                if (blocks * count > 512) continue;
                bench.fill(memory, 0xff, kMost * bytes);
                line(std::to_string(blocks) + " blocks an expert", [&] {
                    set = (set + 1) % kSets;
                    bench.launch(kernel, {blocks, count, 1}, 256, 0,
                                 static_cast<const GatherPiece*>(table + set * kMost));
                });
                const auto out = bench.download(memory, count * bytes);
                bench.expect(
                    std::memcmp(out.data(), host.data.get() + set * kMost * bytes, out.size()) == 0,
                    what + ": gathered bytes differ");
            }
        }
        bench.release(mark);
    }
}

}  // namespace granary::gpu::cuda::bench

// SPDX-License-Identifier: GPL-3.0-or-later
// What prompts are multiplied with, beside each other on one card: 8-bit integers and f16 as cards
// without wgmma do it. Dense matrices and experts at the shapes of Qwen3-30B-A3B.
#include <algorithm>
#include <numeric>
#include <string>

#include "gpu/cuda/kernels.h"
#include "tests/gpu/cuda_kernel_bench/bench.h"

namespace granary::gpu::cuda::bench {
namespace {

constexpr uint32_t kHidden = 2048, kFfn = 768, kExperts = 128, kUsed = 8;
constexpr size_t kScratch = size_t{64} << 20;

// Random codes with scales of about 0.01.
std::byte* random_matrices(Bench& bench, WeightType type, size_t count, uint32_t rows,
                           uint32_t cols) {
    const WeightTypeInfo& info = weight_type_info(type);
    std::vector<std::byte> data(count * rows * row_bytes(type, cols));
    in_parallel(data.size() / info.block_bytes, [&](size_t block) {
        Random random(block);
        std::byte* const at = data.data() + block * info.block_bytes;
        for (uint32_t i = 0; i < info.block_bytes; ++i)
            at[i] = static_cast<std::byte>(random.next());
        const auto set = [&](size_t i) { at[i] = std::byte{0x12}, at[i + 1] = std::byte{0x11}; };
        set(type == WeightType::q6_k ? 208 : 0);
        if (type == WeightType::q4_k) set(2);
    });
    return bench.uploaded(data);
}

struct Kind {
    const char* name;
    CudaProducts products;
};
constexpr Kind kKinds[] = {{"f16", CudaProducts::f16}, {"int8", CudaProducts::int8}};

}  // namespace

void products(Bench& bench, Depth depth) {
    const size_t mark = bench.mark();
    std::unique_ptr<CudaKernels> kernels[std::size(kKinds)];
    std::byte* const scratch = bench.allocate<std::byte>(kScratch);
    for (size_t i = 0; i < std::size(kKinds); ++i) {
        kernels[i] = must(load_kernels<CudaKernels>(bench.device(), kKinds[i].products));
        kernels[i]->set_prompt_scratch(scratch, kScratch);
    }
    const auto lines = [&](const std::string& what, double flop, const auto& work) {
        for (size_t i = 0; i < std::size(kKinds); ++i) {
            const Bench::Time time = bench.time([&] { work(*kernels[i]); });
            const double rate = flop / time.milliseconds * 1e-9;
            bench.add({"products", what, kKinds[i].name, time.milliseconds, time.spread, rate, 0,
                       rate / bench.limit_mma});
        }
    };
    const auto codes_of = [&](uint32_t rows, uint32_t cols) {
        return reinterpret_cast<std::byte*>(
            bench.uploaded(random_halves(size_t{rows} * cols, 1.7f, 5)));
    };
    const std::vector<uint32_t> chunks =
        depth == Depth::full ? std::vector<uint32_t>{512, 4096} : std::vector<uint32_t>{4096};
    for (const WeightType type : {WeightType::q4_k, WeightType::q6_k, WeightType::q8_0}) {
        const std::string name(weight_type_info(type).name);
        for (const uint32_t rows : chunks) {
            const size_t inner = bench.mark();
            constexpr uint32_t kOutputs = 4096;
            const Weight weight{random_matrices(bench, type, 1, kOutputs, kHidden), type, kOutputs,
                                kHidden};
            const Activations in{nullptr, codes_of(rows, kHidden), rows, kHidden};
            const Matmul job{weight, bench.allocate<float>(size_t{rows} * kOutputs), false};
            lines("dense " + name + " " + std::to_string(rows), 2.0 * rows * kOutputs * kHidden,
                  [&](CudaKernels& of) {
                      of.matmul({&job, 1}, in);
                  });
            bench.release(inner);
        }
        const size_t inner = bench.mark();
        const std::byte* const gates = random_matrices(bench, type, kExperts, kFfn, kHidden);
        const std::byte* const downs = random_matrices(bench, type, kExperts, kHidden, kFfn);
        std::vector<ExpertEntry> entries;
        for (uint32_t i = 0; i < kExperts; ++i) {
            const std::byte* const gate = gates + i * kFfn * row_bytes(type, kHidden);
            entries.push_back({gate, gate, downs + i * kHidden * row_bytes(type, kFfn)});
        }
        const ExpertEntry* const table = bench.uploaded(entries);
        std::vector<int32_t> list(kExperts);
        std::iota(list.begin(), list.end(), 0);
        for (const uint32_t rows : chunks) {
            const size_t innermost = bench.mark();
            // Eight experts in a row, from another one on for each token: as many routes for each.
            const uint32_t count = rows * kUsed;
            std::vector<std::vector<int32_t>> of(kExperts);
            for (uint32_t r = 0; r < count; ++r)
                of[(r / kUsed * 37 + r % kUsed) % kExperts].push_back(static_cast<int32_t>(r));
            std::vector<int32_t> first{0}, order;
            for (const auto& routes : of) {
                order.insert(order.end(), routes.begin(), routes.end());
                first.push_back(static_cast<int32_t>(order.size()));
            }
            const Routes routes{
                nullptr, nullptr, nullptr, bench.uploaded(first), bench.uploaded(order), rows};
            const Activations x{nullptr, codes_of(rows, kHidden), rows, kHidden};
            const Activations hidden{
                nullptr, bench.allocate<std::byte>(count * kernels[0]->code_bytes(kFfn)), count,
                kFfn};
            void* const out = bench.allocate<uint16_t>(size_t{count} * kHidden);
            const ExpertShape shape{kHidden, kFfn, kExperts, kUsed, type, type, type};
            lines("experts " + name + " " + std::to_string(rows), 6.0 * count * kHidden * kFfn,
                  [&](CudaKernels& with) {
                      with.expert_ffn(shape, table, list, routes, x, hidden, out);
                  });
            bench.release(innermost);
        }
        bench.release(inner);
    }
    bench.release(mark);
}

}  // namespace granary::gpu::cuda::bench

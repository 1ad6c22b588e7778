// SPDX-License-Identifier: GPL-3.0-or-later
// Times of the matrix kernels at the shapes of real models; run by
//   cuda_parity_test --gtest_also_run_disabled_tests --gtest_filter='*MatmulTimes*'
#include <cstdio>
#include <functional>

#include "tests/gpu/cuda/support.h"

namespace granary::gpu::cuda::test {
namespace {

class MatmulTimes : public CudaTest {
  protected:
    // Microseconds of `work`, recorded as a graph that runs it `times` times: launches cost what
    // they cost a decode step. The best of five.
    double measure(uint32_t times, const std::function<void(uint32_t)>& work) {
        const Driver& driver = gpu().device().context().driver();
        const Stream stream = gpu().device().stream(StreamId::compute);
        work(0);
        gpu().synchronize();
        Graph graph = nullptr;
        GraphExec exec = nullptr;
        EXPECT_EQ(driver.capture_begin(stream, kCaptureThreadLocal), 0);
        for (uint32_t i = 0; i < times; ++i) work(i);
        EXPECT_EQ(driver.capture_end(stream, &graph), 0);
        EXPECT_EQ(driver.graph_instantiate(&exec, graph, 0), 0);
        Event begin = nullptr, end = nullptr;
        driver.event_create(&begin, 0);
        driver.event_create(&end, 0);
        float best = 1e30f;
        for (int i = 0; i < 6; ++i) {
            driver.event_record(begin, stream);
            EXPECT_EQ(driver.graph_launch(exec, stream), 0);
            driver.event_record(end, stream);
            gpu().synchronize();
            float milliseconds = 0;
            driver.event_elapsed(&milliseconds, begin, end);
            if (i > 0) best = std::min(best, milliseconds);
        }
        driver.event_destroy(begin);
        driver.event_destroy(end);
        driver.graph_exec_destroy(exec);
        driver.graph_destroy(graph);
        return best * 1000.0 / times;
    }
    // Matrices of one type and shape behind each other, more than the caches hold; every one the
    // same random 16 MB over and over.
    std::vector<Weight> matrices(WeightType type, uint32_t rows, uint32_t cols, size_t at_least) {
        const size_t bytes = row_bytes(type, cols) * rows, each = (bytes + 255) / 256 * 256;
        const size_t count = std::max<size_t>(1, (at_least + each - 1) / each);
        std::byte* const base = gpu().allocate(count * each);
        const size_t block = weight_type_info(type).block_bytes;
        Random random(1);
        const std::vector<std::byte> some =
            random_blocks(type, std::min(count * each, size_t{16} << 20) / block, 0.01f, random);
        std::vector<Weight> all;
        for (size_t i = 0; i < count; ++i) {
            std::byte* const to = base + i * each;
            for (size_t done = 0; done < bytes; done += some.size())
                gpu().device().copy(StreamId::compute, to + done, some.data(),
                                    std::min(bytes - done, some.size()));
            all.push_back({to, type, rows, cols});
        }
        return all;
    }
    static constexpr size_t kBeyondCaches = size_t{300} << 20;
};

TEST_F(MatmulTimes, DISABLED_Decode) {
    std::printf("%-8s %13s %5s %9s %8s\n", "type", "shape", "rows", "us", "GB/s");
    const auto time = [&](WeightType type, uint32_t outputs, uint32_t cols,
                          std::initializer_list<uint32_t> row_counts) {
        gpu().reset();
        const std::vector<Weight> all = matrices(type, outputs, cols, kBeyondCaches);
        const auto times = static_cast<uint32_t>(std::max<size_t>(all.size(), 8));
        for (const uint32_t rows : row_counts) {
            const Array<float> out(gpu(), size_t{8} * outputs);
            const Array<float> values(gpu(), Random(2).values(size_t{rows} * cols));
            const Array<std::byte> codes(gpu(), rows * kernels().code_bytes(cols));
            const Activations in{values, codes, rows, cols, true};
            kernels().quantise(in);
            const double us = measure(times, [&](uint32_t i) {
                const Matmul job{all[i % all.size()], out, false};
                kernels().matmul({&job, 1}, in);
            });
            std::printf("%-8s %6u x %-5u %4u %9.2f %8.0f\n",
                        std::string(weight_type_info(type).name).c_str(), outputs, cols, rows, us,
                        static_cast<double>(row_bytes(type, cols)) * outputs / us * 1e-3);
        }
    };
    for (const WeightType type : {WeightType::q4_k, WeightType::q8_0}) {
        time(type, 4096, 2048, {1, 2, 8});
        time(type, 2048, 4096, {1, 8});
    }
    time(WeightType::q6_k, 151936, 2048, {1, 2, 8});
    time(WeightType::q8_0, 151936, 2048, {1});
    for (const WeightType type : kTypes) time(type, 16384, 2048, {1});
}

TEST_F(MatmulTimes, DISABLED_Prompt) {
    std::printf("%-8s %13s %6s %9s %8s\n", "type", "shape", "rows", "us", "TFLOP/s");
    const auto time = [&](WeightType type, uint32_t outputs, uint32_t cols, uint32_t rows) {
        gpu().reset();
        const Weight weight = matrices(type, outputs, cols, 1)[0];
        const Array<float> out(gpu(), size_t{rows} * outputs);
        const Array<std::byte> codes(gpu(),
                                     to_ordered(Random(2).values(size_t{rows} * cols), rows, cols));
        const Activations in{nullptr, codes, rows, cols, false};
        const double us = measure(5, [&](uint32_t) {
            const Matmul job{weight, out, false};
            kernels().matmul({&job, 1}, in);
        });
        std::printf("%-8s %6u x %-5u %5u %9.1f %8.1f\n",
                    std::string(weight_type_info(type).name).c_str(), outputs, cols, rows, us,
                    2.0 * rows * outputs * cols / us * 1e-6);
    };
    for (const WeightType type : {WeightType::q4_k, WeightType::q8_0}) {
        time(type, 4096, 2048, 4096);
        time(type, 2048, 4096, 4096);
        time(type, 512, 2048, 4096);
    }
    time(WeightType::q4_k, 4096, 2048, 512);
    for (const WeightType type : kTypes) time(type, 4096, 2048, 2048);
}

// qwen3-30b-a3b: 128 experts of 2048 x 768, eight a token, routed as a shuffle.
TEST_F(MatmulTimes, DISABLED_Experts) {
    std::printf("%-14s %6s %6s %9s %8s\n", "types", "rows", "", "us", "");
    const auto time = [&](WeightType gate, WeightType down, uint32_t rows, bool decode) {
        gpu().reset();
        constexpr uint32_t kHidden = 2048, kFfn = 768, kExperts = 128, kUsed = 8;
        const uint32_t layers = decode ? 4 : 1;
        std::vector<ExpertEntry> entries;
        for (uint32_t i = 0; i < layers; ++i) {
            const auto gates =
                matrices(gate, kFfn, kHidden, kExperts * row_bytes(gate, kHidden) * kFfn);
            const auto ups =
                matrices(gate, kFfn, kHidden, kExperts * row_bytes(gate, kHidden) * kFfn);
            const auto downs =
                matrices(down, kHidden, kFfn, kExperts * row_bytes(down, kFfn) * kHidden);
            for (uint32_t e = 0; e < kExperts; ++e)
                entries.push_back({gates[e].data, ups[e].data, downs[e].data});
        }
        const Array<ExpertEntry> table(gpu(), entries);
        const uint32_t count = rows * kUsed;
        std::vector<int32_t> expert(count), number(kExperts, 0), first(kExperts + 1), order;
        Random random(3);
        std::vector<int32_t> list(kExperts), deck;
        for (uint32_t e = 0; e < kExperts; ++e) list[e] = static_cast<int32_t>(e);
        std::vector<std::vector<int32_t>> of(kExperts);
        for (uint32_t r = 0; r < count; ++r) {
            if (r % kUsed == 0) deck = list;
            std::swap(deck[r % kUsed], deck[r % kUsed + random.engine() % (kExperts - r % kUsed)]);
            expert[r] = deck[r % kUsed];
            of[expert[r]].push_back(static_cast<int32_t>(r));
        }
        for (uint32_t e = 0; e < kExperts; ++e) {
            first[e] = static_cast<int32_t>(order.size());
            number[e] = static_cast<int32_t>(of[e].size());
            order.insert(order.end(), of[e].begin(), of[e].end());
        }
        first[kExperts] = static_cast<int32_t>(order.size());
        const Array<int32_t> d_expert(gpu(), expert), d_number(gpu(), number),
            d_first(gpu(), first), d_order(gpu(), order);
        const Routes routes{d_expert, nullptr, d_number, d_first, d_order, rows};
        const std::vector<float> x = Random(2).values(size_t{rows} * kHidden);
        const Array<float> values(gpu(), x);
        const Array<std::byte> codes(gpu(), to_ordered(x, rows, kHidden));
        const Activations in{values, codes, rows, kHidden, decode};
        if (decode) kernels().quantise(in);
        const Array<std::byte> between(gpu(), count * kernels().code_bytes(kFfn));
        const Array<uint16_t> out(gpu(), size_t{count} * kHidden);
        const ExpertShape shape{kHidden, kFfn, kExperts, kUsed, gate, gate, down};
        const double us = measure(decode ? 16 : 4, [&](uint32_t i) {
            kernels().expert_ffn(shape, table + i % layers * kExperts, list, routes, in,
                                 {nullptr, between, count, kFfn, decode}, out);
        });
        const double bytes =
            static_cast<double>(count) * static_cast<double>(2 * row_bytes(gate, kHidden) * kFfn +
                                                             row_bytes(down, kFfn) * kHidden);
        const double flop = 6.0 * count * kHidden * kFfn;
        std::printf("%-6s %-6s %6u %9.2f us %8.1f %s\n",
                    std::string(weight_type_info(gate).name).c_str(),
                    std::string(weight_type_info(down).name).c_str(), rows, us,
                    decode ? bytes / us * 1e-3 : flop / us * 1e-6, decode ? "GB/s" : "TFLOP/s");
    };
    using enum WeightType;
    for (const uint32_t rows : {1u, 2u, 8u}) time(q4_k, q6_k, rows, true);
    time(q4_k, q4_k, 1, true);
    time(iq4_xs, iq4_nl, 1, true);
    time(mxfp4, mxfp4, 1, true);
    for (const uint32_t rows : {512u, 4096u}) {
        time(q4_k, q6_k, rows, false);
        time(q4_k, q4_k, rows, false);
    }
    time(q8_0, q8_0, 4096, false);
    time(mxfp4, mxfp4, 4096, false);
}

}  // namespace
}  // namespace granary::gpu::cuda::test

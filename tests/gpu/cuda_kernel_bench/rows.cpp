// SPDX-License-Identifier: GPL-3.0-or-later
// Operations on rows, routes and the expert cache at the shapes of Qwen3-30B-A3B (and the delta
// net's at those of Qwen3.6-35B-A3B), for one generated token and a prompt of 4,096. Calls are
// recorded in a graph, as a decode step is, so that times are the card's.
#include <algorithm>
#include <cstring>
#include <string>

#include "gpu/cuda/kernels.h"
#include "tests/gpu/cuda_kernel_bench/bench.h"

namespace granary::gpu::cuda::bench {
namespace {

constexpr uint32_t kHidden = 2048, kExperts = 128, kUsed = 8, kVocab = 151936;
constexpr size_t kScratch = size_t{64} << 20;

// Records `work` `times` times; median milliseconds of one.
Bench::Time time_recorded(Bench& bench, uint32_t times, const std::function<void()>& work) {
    const Driver& driver = bench.driver();
    Graph graph = nullptr;
    GraphExec exec = nullptr;
    bench.synchronize();
    bench.check(driver.capture_begin(bench.stream(), kCaptureThreadLocal), "cuStreamBeginCapture");
    for (uint32_t i = 0; i < times; ++i) work();
    bench.check(driver.capture_end(bench.stream(), &graph), "cuStreamEndCapture");
    bench.check(driver.graph_instantiate(&exec, graph, 0), "cuGraphInstantiate");
    const Bench::Time time = bench.time(
        [&] { bench.check(driver.graph_launch(exec, bench.stream()), "cuGraphLaunch"); });
    bench.check(driver.graph_exec_destroy(exec), "cuGraphExecDestroy");
    bench.check(driver.graph_destroy(graph), "cuGraphDestroy");
    return {time.milliseconds / times, time.spread};
}

float* random_floats(Bench& bench, size_t count) {
    Random random(count);
    std::vector<float> values(count);
    for (float& value : values) value = random.symmetric();
    return bench.uploaded(values);
}

}  // namespace

void rows(Bench& bench) {
    const auto kernels = must(load_kernels<CudaKernels>(bench.device()));
    const size_t mark = bench.mark();
    kernels->set_scratch(bench.allocate<std::byte>(kScratch), kScratch);
    kernels->set_prompt_scratch(bench.allocate<std::byte>(kScratch), kScratch);
    const auto floats = [&](size_t count) { return random_floats(bench, count); };

    // An embedding in page-locked memory, Q4_K.
    const WeightTypeInfo& q4_k = weight_type_info(WeightType::q4_k);
    const HostBuffer table =
        must(bench.device().page_locked(size_t{kVocab} * kHidden / 256 * q4_k.block_bytes));
    std::memset(table.data.get(), 0x11, table.bytes);

    for (const uint32_t n : {1u, 8u, 4096u}) {
        const uint32_t repeats = n > 8 ? 4 : 64;
        const auto line = [&](const std::string& name, double bytes, double flop,
                              const std::function<void()>& work) {
            const Bench::Time time = time_recorded(bench, repeats, work);
            bench.add({"rows", std::to_string(n) + " rows", name, time.milliseconds, time.spread,
                       flop / time.milliseconds * 1e-9, bytes / time.milliseconds * 1e-6,
                       bytes / time.milliseconds * 1e-6 / bench.limit_copy});
        };
        const double values = static_cast<double>(n) * kHidden;
        Random random(n);
        std::vector<int32_t> picks(n);
        for (int32_t& pick : picks) pick = static_cast<int32_t>(random.below(kVocab));
        int32_t* const tokens = bench.uploaded(picks);
        float* const x = floats(size_t{n} * kHidden);
        float* const norm = bench.allocate<float>(size_t{n} * kHidden);
        std::byte* const codes = bench.allocate<std::byte>(n * kernels->code_bytes(kHidden));
        float* const weight = floats(kHidden);
        const Activations out{norm, codes, n, kHidden};
        line("embed, page-locked", values * (144.0 / 256 + 4), 0, [&] {
            kernels->embed({table.data.get(), WeightType::q4_k, kVocab, kHidden}, tokens, n, norm);
        });
        line("rms_norm", values * 10, 0, [&] { kernels->rms_norm(x, weight, 1e-6f, out); });
        line("quantise", values * 6, 0, [&] { kernels->quantise(out); });

        // ---- q, k, v
        const AttentionShape shape{
            .heads = 32, .kv_heads = 4, .head_dim = 128, .rope = rope_table(128, 1e6)};
        float* const q = floats(size_t{n} * 4096);
        float* const k = floats(size_t{n} * 512);
        for (const KvFormat format :
             {KvFormat::f16, KvFormat::int8, KvFormat::k8v4, KvFormat::q4}) {
            const KvParts parts = kv_parts(format, 4, 128);
            std::byte* const kv = bench.allocate<std::byte>(parts.bytes * 5);
            const double stored = static_cast<double>(parts.k.code_row + parts.k.scale_row +
                                                      parts.v.code_row + parts.v.scale_row);
            line("rope_store " + std::string(kv_format_name(format)),
                 n * (4096.0 * 8 + 1024 * 4 + stored), 0, [&] {
                     kernels->rope_store(shape, weight, weight, 0, n, q, k, k,
                                         {kv, parts.bytes, parts.k, parts.v});
                 });
        }

        // ---- routes
        const auto routes_of = [&](uint32_t experts, uint32_t used) {
            return Routes{bench.allocate<int32_t>(n * used), bench.allocate<float>(n * used),
                          bench.allocate<int32_t>(experts),  bench.allocate<int32_t>(experts + 1),
                          bench.allocate<int32_t>(n * used), n};
        };
        for (const uint32_t experts : {kExperts, 256u}) {
            const Routes routes = routes_of(experts, kUsed);
            const float* const router = floats(size_t{experts} * kHidden);
            const Weight matrix{reinterpret_cast<const std::byte*>(router), WeightType::f32,
                                experts, kHidden};
            line("route to 8 of " + std::to_string(experts), values * 4 + experts * 8192.0,
                 values * 2 * experts, [&] {
                     kernels->route({experts, kUsed, true, 1}, matrix, x, routes);
                 });
        }
        const Routes routes = routes_of(kExperts, kUsed);
        const float* const router = floats(size_t{kExperts} * kHidden);
        kernels->route(
            {kExperts, kUsed, true, 1},
            {reinterpret_cast<const std::byte*>(router), WeightType::f32, kExperts, kHidden}, x,
            routes);
        std::byte* const outputs = bench.allocate<std::byte>(size_t{n} * kUsed * kHidden * 2);
        bench.fill(outputs, 0, size_t{n} * kUsed * kHidden * 2);
        line("combine f16", values * (2 * kUsed + 8), 0,
             [&] { kernels->combine(routes, kUsed, kHidden, outputs, x); });

        // ---- gates and the delta net's rows: 8192 channels, 32 value heads of 128
        const DeltaShape delta{.key_heads = 16, .value_heads = 32, .head_dim = 128, .taps = 4};
        float* const channels = floats(size_t{n} * 8192);
        float* const convolved = bench.allocate<float>(size_t{n} * 8192);
        float* const tail = floats(delta.tail_values());
        const float* const taps = floats(8192 * 4);
        line("causal_conv", n * 8192.0 * 8, 0,
             [&] { kernels->causal_conv(delta, taps, channels, n, tail, convolved); });
        std::byte* const wide_codes = bench.allocate<std::byte>(n * kernels->code_bytes(4096));
        line("gated_norm", n * 4096.0 * 14, 0, [&] {
            kernels->gated_norm(channels, weight, 1e-6f, 128, q, {convolved, wide_codes, n, 4096});
        });
        const AttentionShape gated{.heads = 16, .kv_heads = 2, .head_dim = 256, .rope = nullptr};
        line("gate_heads", n * 4096.0 * 14, 0, [&] {
            kernels->gate_heads(gated, channels, {q, wide_codes, n, 4096});
        });
        const Routes shared = routes_of(1, 1);
        line("route_shared", values * 4, 0,
             [&] { kernels->route_shared(weight, x, kHidden, shared); });

        if (n <= 8) {
            const float* const logits = floats(size_t{n} * kVocab);
            int32_t* const best = bench.allocate<int32_t>(n);
            line("argmax of 151,936", n * 4.0 * kVocab, 0,
                 [&] { kernels->argmax(logits, n, kVocab, best); });
        }

        // ---- the expert cache: all hits, then all misses (Q4_K, 2.65 MB an expert)
        constexpr size_t kMatrix = 884736;
        const uint32_t slots = 100;
        const HostBuffer weights = must(bench.device().page_locked(kExperts * 3 * kMatrix));
        std::byte* const memory = bench.allocate<std::byte>(slots * 3 * kMatrix);
        std::vector<ExpertEntry> home;
        std::vector<std::byte*> bases;
        for (uint32_t e = 0; e < kExperts; ++e) {
            const std::byte* const at = weights.data.get() + e * 3 * kMatrix;
            home.push_back({at, at + kMatrix, at + 2 * kMatrix});
        }
        for (uint32_t s = 0; s < slots; ++s) bases.push_back(memory + s * 3 * kMatrix);
        ExpertCacheView cache{kExperts,
                              slots,
                              bench.uploaded(std::vector<int32_t>(kExperts, -1)),
                              bench.uploaded(std::vector<int32_t>(slots, -1)),
                              bench.uploaded(std::vector<uint8_t>(slots, 1)),
                              bench.uploaded(bases),
                              bench.uploaded(std::vector<float>(kExperts)),
                              bench.uploaded(std::vector<uint32_t>(kExperts)),
                              bench.uploaded(home),
                              bench.uploaded(home),
                              kMatrix,
                              kMatrix,
                              kMatrix,
                              kMatrix,
                              2 * kMatrix,
                              bench.uploaded(std::vector<uint64_t>(3)),
                              nullptr,
                              nullptr};
        cache.misses = cache.hits + 1;
        cache.bytes_copied = cache.hits + 2;
        if (n <= 8) {
            const DecodePlace* const place =
                bench.uploaded(std::vector<DecodePlace>{{nullptr, 0, 1}});
            kernels->fetch_experts(cache, routes, kUsed, place);  // all there from now on
            line("fetch_experts, all there", 0, 0,
                 [&] { kernels->fetch_experts(cache, routes, kUsed, place); });
            std::vector<int32_t> count = bench.download(routes.count, kExperts);
            const auto chosen =
                std::count_if(count.begin(), count.end(), [](int32_t c) { return c; });
            // Nothing is there again before each call.
            int32_t* const none = bench.uploaded(std::vector<int32_t>(kExperts, -1));
            const auto forget = [&] {
                bench.device().copy(StreamId::compute, cache.slot_of, none, kExperts * 4);
                bench.device().copy(StreamId::compute, cache.expert_in, none, slots * 4);
            };
            line("fetch_experts, " + std::to_string(chosen) + " missing",
                 static_cast<double>(chosen) * 3 * kMatrix, 0, [&] {
                     forget();
                     kernels->fetch_experts(cache, routes, kUsed, place);
                 });
        } else {
            line("note_routes of 512 rows", 0, 0,
                 [&] { kernels->note_routes(cache, routes, kUsed, n - 512, 2); });
            std::vector<ExpertEntry> to;
            std::vector<int32_t> list;
            for (uint32_t e = 0; e < 4; ++e) {
                list.push_back(static_cast<int32_t>(e));
                to.push_back({bases[e], bases[e] + kMatrix, bases[e] + 2 * kMatrix});
            }
            const ExpertEntry* const table_of = bench.uploaded(to);
            line("gather_routed, 4 experts", 4.0 * 3 * kMatrix, 0,
                 [&] { kernels->gather_routed(cache, list, routes, table_of); });
        }
    }
    bench.release(mark);
}

}  // namespace granary::gpu::cuda::bench

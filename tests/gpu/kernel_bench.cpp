// SPDX-License-Identifier: GPL-3.0-or-later
// Times the host kernels on the starter model's shapes and prints a table; not a test.
//   kernel_bench [threads] [name part] [number of the 8-bit kernels, 0 is the best]
// The last column compares the bytes with the measured rate of reading memory, which bounds
// products with few rows; weights of these sizes stay in cache, so that they may exceed it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <numeric>
#include <string>

#include "gpu/host/host_kernels.h"
#include "gpu/host/thread_pool.h"
#include "gpu/host/tile.h"
#include "tests/gpu/kernels_support.h"

namespace granary::gpu::test {
namespace {

using Clock = std::chrono::steady_clock;

struct Bench {
    host::ThreadPool pool;
    host::HostKernels kernels;
    std::string filter;
    std::vector<std::byte> scratch;
    double read_rate = 0;  // bytes a second, all threads

    Bench(unsigned threads, std::string name, size_t tiles)
        : pool(threads), kernels(pool, host::tile_kernels()[tiles]), filter(name) {}

    // One thread is timed by the clock of its own processor time, several by the wall clock.
    double now() const {
        timespec time;
        clock_gettime(pool.threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
        return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    }

    // Seconds of the fastest call in 0.3 s: what the code takes when nobody else runs.
    double time(const std::function<void()>& call) {
        call();
        double best = 1e9;
        const auto start = Clock::now();
        do {
            const double begin = now();
            call();
            best = std::min(best, now() - begin);
        } while (Clock::now() - start < std::chrono::milliseconds(300));
        return best;
    }

    void hand_scratch(const AttentionShape& shape, uint32_t cells) {
        scratch.resize(kernels.scratch_bytes(shape, cells) + 64);
        void* aligned = scratch.data();
        size_t space = scratch.size();
        std::align(64, space - 64, aligned, space);
        kernels.set_scratch(static_cast<std::byte*>(aligned), space);
    }

    bool wanted(const std::string& name) const { return name.find(filter) != std::string::npos; }

    void row(const std::string& name, double operations, double bytes,
             const std::function<void()>& call) {
        if (!wanted(name)) return;
        const double seconds = time(call);
        std::printf("%-44s %10.2f us %9.1f GFLOP/s %8.1f GB/s %5.0f %% of reading\n", name.c_str(),
                    seconds * 1e6, operations / seconds / 1e9, bytes / seconds / 1e9,
                    100 * bytes / seconds / read_rate);
    }
};

// The rate at which all threads read 256 MiB.
double measure_reading(Bench& bench) {
    std::vector<uint64_t> data(32 << 20, 1);
    std::vector<uint64_t> sums(64);
    const double seconds = bench.time([&] {
        bench.pool.run([&](unsigned worker) {
            const auto part = host::share(data.size(), 64, worker, bench.pool.threads());
            uint64_t sum[8] = {};
            for (size_t i = part.begin; i < part.end; i += 8)
                for (size_t j = 0; j < 8; ++j) sum[j] += data[i + j];
            sums[worker] = std::accumulate(sum, sum + 8, uint64_t{0});
        });
    });
    return static_cast<double>(data.size() * 8) / seconds;
}

constexpr uint32_t kHidden = 512, kFfn = 256, kExperts = 20, kUsed = 4, kLayers = 8, kVocab = 8192,
                   kHeads = 8, kKvHeads = 2, kDim = 64;

// The starter model's layers with random weights: each layer has its own, as memory traffic asks.
struct Model {
    struct Layer {
        std::unique_ptr<RandomWeight> q, k, v, o, router;
        std::vector<std::unique_ptr<RandomWeight>> experts;
        std::vector<ExpertEntry> entries;
        ExpertShape shape;
        std::vector<std::byte> cells;
        KvView kv;
    };
    std::vector<Layer> layers;
    std::unique_ptr<RandomWeight> output, embedding;
    std::vector<float> norm, head_norm;
    AttentionShape attention;
    std::vector<int32_t> list;

    Model(uint32_t cells, Random& random) : norm(kHidden, 1.0f), head_norm(kDim, 1.0f) {
        attention.heads = kHeads;
        attention.kv_heads = kKvHeads;
        attention.head_dim = kDim;
        attention.rope = rope_table(kDim, 10000);
        attention.scale = 0.125f;
        list.resize(kExperts);
        std::iota(list.begin(), list.end(), 0);
        const auto make = [&](WeightType type, uint32_t rows, uint32_t cols) {
            return std::make_unique<RandomWeight>(type, rows, cols, random);
        };
        for (uint32_t l = 0; l < kLayers; ++l) {
            const bool fine = l == 0 || l == 3 || l >= 6;
            Layer& layer = layers.emplace_back();
            layer.q = make(WeightType::q4_k, kHeads * kDim, kHidden);
            layer.k = make(WeightType::q4_k, kKvHeads * kDim, kHidden);
            layer.v = make(fine ? WeightType::q6_k : WeightType::q4_k, kKvHeads * kDim, kHidden);
            layer.o = make(WeightType::q4_k, kHidden, kHeads * kDim);
            layer.router = make(WeightType::f32, kExperts, kHidden);
            layer.shape = {kHidden,
                           kFfn,
                           kExperts,
                           kUsed,
                           WeightType::q4_k,
                           WeightType::q4_k,
                           fine ? WeightType::q6_k : WeightType::q4_k};
            for (uint32_t e = 0; e < kExperts; ++e) {
                layer.experts.push_back(make(layer.shape.gate, kFfn, kHidden));
                layer.experts.push_back(make(layer.shape.up, kFfn, kHidden));
                layer.experts.push_back(make(layer.shape.down, kHidden, kFfn));
                const auto* last = &layer.experts.back();
                layer.entries.push_back(
                    {last[-2]->data.data(), last[-1]->data.data(), last[0]->data.data()});
            }
            KvView& kv = layer.kv;
            const KvParts parts = kv_parts(KvFormat::f16, kKvHeads, kDim);
            kv = {nullptr, parts.bytes, parts.k, parts.v, nullptr, 0};
            layer.cells.resize((cells + kStepCells) / kStepCells * kv.step_bytes + kv.step_bytes);
            kv.base = layer.cells.data();
        }
        output = make(WeightType::q6_k, kVocab, kHidden);
        embedding = make(WeightType::q6_k, kVocab, kHidden);
    }
};

// One chunk's buffers.
struct Buffers {
    Rows normed, attended, inner;
    std::vector<float> x, q, k, v, out, logits;
    std::vector<int32_t> tokens, expert, count, first, order, best;
    std::vector<float> weight;
    Routes routes;
    Buffers(host::HostKernels& kernels, uint32_t n)
        : normed(kernels, n, kHidden, Arithmetic::fast),
          attended(kernels, n, kHeads * kDim, Arithmetic::fast),
          inner(kernels, n * kUsed, kFfn, Arithmetic::fast),
          x(size_t{n} * kHidden),
          q(size_t{n} * kHeads * kDim),
          k(size_t{n} * kKvHeads * kDim),
          v(k.size()),
          out(size_t{n} * kUsed * kHidden),
          logits(kVocab),
          tokens(n),
          expert(n * kUsed),
          count(kExperts),
          first(kExperts + 1),
          order(n * kUsed),
          best(1),
          weight(n * kUsed) {
        for (uint32_t i = 0; i < n; ++i) tokens[i] = static_cast<int32_t>(i * 977 % kVocab);
        routes = {expert.data(), weight.data(), count.data(), first.data(), order.data(), n};
    }
};

// All of the model for n tokens at first_cell, in the order of a real engine.
void forward(host::HostKernels& kernels, Model& model, Buffers& b, uint32_t first_cell, uint32_t n,
             bool prompt) {
    kernels.embed(model.embedding->weight, b.tokens.data(), n, b.x.data());
    for (Model::Layer& layer : model.layers) {
        kernels.rms_norm(b.x.data(), model.norm.data(), 1e-6f, b.normed.view);
        const Matmul qkv[] = {{layer.q->weight, b.q.data(), false},
                              {layer.k->weight, b.k.data(), false},
                              {layer.v->weight, b.v.data(), false}};
        kernels.matmul(qkv, b.normed.view);
        kernels.rope_store(model.attention, model.head_norm.data(), model.head_norm.data(),
                           first_cell, n, b.q.data(), b.k.data(), b.v.data(), layer.kv);
        if (prompt)
            kernels.attention_prompt(model.attention, b.q.data(), first_cell, layer.kv,
                                     b.attended.view);
        else
            attend_decode(kernels, model.attention, b.q.data(), first_cell, layer.kv,
                          b.attended.view);
        const Matmul o{layer.o->weight, b.x.data(), true};
        kernels.matmul({&o, 1}, b.attended.view);
        kernels.rms_norm(b.x.data(), model.norm.data(), 1e-6f, b.normed.view);
        kernels.route({kExperts, kUsed, true, 1}, layer.router->weight, b.normed.values.data(),
                      b.routes);
        kernels.expert_ffn(layer.shape, layer.entries.data(), model.list, b.routes, b.normed.view,
                           b.inner.view, b.out.data());
        kernels.combine(b.routes, kUsed, kHidden, b.out.data(), b.x.data());
    }
    Activations last = b.normed.view;
    last.rows = 1;
    kernels.rms_norm(b.x.data() + size_t{n - 1} * kHidden, model.norm.data(), 1e-6f, last);
    const Matmul output{model.output->weight, b.logits.data(), false};
    kernels.matmul({&output, 1}, last);
    kernels.argmax(b.logits.data(), 1, kVocab, b.best.data());
}

AttentionShape attention_shape(uint32_t heads, uint32_t kv_heads, uint32_t dim) {
    AttentionShape shape;
    shape.heads = heads;
    shape.kv_heads = kv_heads;
    shape.head_dim = dim;
    shape.rope = rope_table(dim, 10000);
    shape.scale = 1 / std::sqrt(static_cast<float>(dim));
    return shape;
}

// Storing cells and attending to them. Names begin with "attention".
void attention_rows(Bench& bench, const AttentionShape& shape, KvFormat format, Random& random) {
    constexpr uint32_t kCells = 32768, kRows = 512;
    const std::string what = std::string(kv_format_name(format)) + " " +
                             std::to_string(shape.heads) + "/" + std::to_string(shape.kv_heads) +
                             "x" + std::to_string(shape.head_dim);
    host::HostKernels& kernels = bench.kernels;
    const uint32_t width = shape.heads * shape.head_dim, kv_width = shape.kv_heads * shape.head_dim;
    bench.hand_scratch(shape, kCells + kRows);
    const KvParts parts = kv_parts(format, shape.kv_heads, shape.head_dim);
    std::vector<std::byte> cells((kCells / kStepCells + 1) * parts.bytes);
    const KvView kv{cells.data(), parts.bytes, parts.k, parts.v, nullptr, 0};
    std::vector<float> q(size_t{kRows} * width), values(size_t{kRows} * kv_width);
    Rows out(kernels, kRows, width, Arithmetic::fast);
    const auto store = [&](uint32_t first, uint32_t n) {
        kernels.rope_store(shape, nullptr, nullptr, first, n, q.data(), values.data(),
                           values.data(), kv);
    };
    for (float& x : q) x = random.value();
    for (uint32_t first = 0; first < kCells; first += kRows) {
        for (float& x : values) x = random.value();
        store(first, kRows);
    }
    Activations to = out.view;
    for (const uint32_t n : {1u, kRows})
        bench.row("attention store " + what + ", rows " + std::to_string(n),
                  10.0 * n * (width + 2 * kv_width), 4.0 * n * (2 * width + 2 * kv_width),
                  [&] { store(0, n); });
    for (const uint32_t longest : {64u, 4096u, kCells}) {
        const std::string at = what + " at " + std::to_string(longest);
        const double pairs = static_cast<double>(longest) * width;
        const double bytes =
            static_cast<double>(longest) * static_cast<double>(parts.bytes) / kStepCells;
        to.rows = 1;
        bench.row("attention decode " + at, 4 * pairs, bytes,
                  [&] { attend_decode(kernels, shape, q.data(), longest - 1, kv, to); });
        to.rows = kRows;
        bench.row("attention prompt " + at, 4 * kRows * pairs,
                  bytes * kRows * shape.heads / shape.kv_heads / 64,
                  [&] { kernels.attention_prompt(shape, q.data(), longest - 1, kv, to); });
    }
}

void run(Bench& bench) {
    Random random(1);
    host::HostKernels& kernels = bench.kernels;
    bench.read_rate = measure_reading(bench);
    std::printf("%u threads, reading %.1f GB/s\n", bench.pool.threads(), bench.read_rate / 1e9);
    Model model(42000, random);
    bench.hand_scratch(model.attention, 42000);

    bench.row("fork and join", 0, 0, [&] { bench.pool.run([](unsigned) {}); });
    bench.row("barrier", 0, 0, [&] {
        bench.pool.run([&](unsigned) {
            for (int i = 0; i < 10; ++i) bench.pool.barrier();
        });
    });
    for (const WeightType type : kTypes) {
        const RandomWeight w(type, 2048, 512, random);
        for (const uint32_t rows : {1u, 8u, 512u}) {
            Rows in(kernels, rows, 512, Arithmetic::fast);
            in.values = random.values(in.values.size());
            in.view.values = in.values.data();
            kernels.quantise(in.view);
            std::vector<float> out(size_t{rows} * 2048);
            const Matmul job{w.weight, out.data(), false};
            bench.row("matmul " + std::string(weight_type_info(type).name) + " 2048x512, rows " +
                          std::to_string(rows),
                      2.0 * rows * 2048 * 512, static_cast<double>(w.data.size()), [&] {
                          kernels.matmul({&job, 1}, in.view);
                      });
        }
    }
    // Larger than any cache: what decoding a large model does.
    for (const WeightType type : {WeightType::q4_k, WeightType::q6_k, WeightType::f16}) {
        const std::string name =
            "large " + std::string(weight_type_info(type).name) + " 65536x2048, rows 1";
        if (!bench.wanted(name)) continue;
        std::vector<std::byte> data = random_blocks(
            type, 65536 * size_t{2048} / weight_type_info(type).block_elements, 0.01f, random);
        Rows in(kernels, 1, 2048, Arithmetic::fast);
        in.values = random.values(in.values.size());
        in.view.values = in.values.data();
        kernels.quantise(in.view);
        std::vector<float> out(65536);
        const Matmul job{{data.data(), type, 65536, 2048}, out.data(), false};
        bench.row(name, 2.0 * 65536 * 2048, static_cast<double>(data.size()), [&] {
            kernels.matmul({&job, 1}, in.view);
        });
    }
    {
        Buffers b(kernels, 512);
        Model::Layer& layer = model.layers[0];
        for (float& x : b.x) x = random.value();
        for (const uint32_t n : {1u, 512u}) {
            const std::string rows = ", rows " + std::to_string(n);
            Activations normed = b.normed.view, attended = b.attended.view;
            normed.rows = attended.rows = b.routes.rows = n;
            bench.row("rms_norm 512" + rows, 10.0 * n * kHidden, 12.0 * n * kHidden,
                      [&] { kernels.rms_norm(b.x.data(), model.norm.data(), 1e-6f, normed); });
            bench.row("rope_store 8+2 heads of 64" + rows, 10.0 * n * 10 * kDim, 10.0 * n * kHidden,
                      [&] {
                          kernels.rope_store(model.attention, model.head_norm.data(),
                                             model.head_norm.data(), 0, n, b.q.data(), b.k.data(),
                                             b.v.data(), layer.kv);
                      });
            bench.row("route 20 of 512" + rows, 2.0 * n * kExperts * kHidden, 4.0 * n * kHidden,
                      [&] {
                          kernels.route({kExperts, kUsed, true, 1}, layer.router->weight,
                                        b.normed.values.data(), b.routes);
                      });
            kernels.rms_norm(b.x.data(), model.norm.data(), 1e-6f, normed);
            kernels.route({kExperts, kUsed, true, 1}, layer.router->weight, b.normed.values.data(),
                          b.routes);
            const double expert_bytes = 3.0 * 144 / 256 * kHidden * kFfn;
            bench.row("expert_ffn 4 of 20" + rows, 6.0 * n * kUsed * kHidden * kFfn,
                      expert_bytes * (n == 1 ? kUsed : kExperts), [&] {
                          kernels.expert_ffn(layer.shape, layer.entries.data(), model.list,
                                             b.routes, normed, b.inner.view, b.out.data());
                      });
            bench.row("combine" + rows, 8.0 * n * kHidden, 24.0 * n * kHidden,
                      [&] { kernels.combine(b.routes, kUsed, kHidden, b.out.data(), b.x.data()); });
        }
        bench.row("embed Q6_K 512", 0, 0,
                  [&] { kernels.embed(model.embedding->weight, b.tokens.data(), 1, b.x.data()); });
        bench.row("argmax 8192", kVocab, 4.0 * kVocab,
                  [&] { kernels.argmax(b.logits.data(), 1, kVocab, b.best.data()); });
    }
    for (const AttentionShape& shape :
         {attention_shape(8, 2, 64), attention_shape(32, 4, 128), attention_shape(16, 2, 256)})
        for (const KvFormat format : {KvFormat::f16, KvFormat::int8, KvFormat::k8v4, KvFormat::q4})
            attention_rows(bench, shape, format, random);
    bench.hand_scratch(model.attention, 42000);
    for (const uint32_t cells : {100u, 1000u, 40000u}) {
        if (!bench.wanted("model decode")) break;
        Buffers b(kernels, 1);
        const double seconds = bench.time([&] { forward(kernels, model, b, cells, 1, false); });
        std::printf("model decode at %-6u %9.3f ms %9.0f tok/s\n", cells, seconds * 1e3,
                    1 / seconds);
    }
    for (const uint32_t n : {64u, 512u, 2048u}) {
        if (!bench.wanted("model prompt")) break;
        Buffers b(kernels, n);
        const double seconds = bench.time([&] { forward(kernels, model, b, 0, n, true); });
        std::printf("model prompt of %-6u %9.3f ms %9.0f tok/s\n", n, seconds * 1e3, n / seconds);
    }
}

}  // namespace
}  // namespace granary::gpu::test

int main(int argc, char** argv) {
    const unsigned threads = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 2;
    granary::gpu::test::Bench bench(threads, argc > 2 ? argv[2] : "",
                                    argc > 3 ? static_cast<size_t>(std::atoi(argv[3])) : 0);
    granary::gpu::test::run(bench);
}

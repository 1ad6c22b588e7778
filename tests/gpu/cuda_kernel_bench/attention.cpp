// SPDX-License-Identifier: GPL-3.0-or-later
// Prompt attention: every output written, sampled rows against softmax in double precision, the
// same bits however launches and chunks are cut, and times at depth.
#include "gpu/cuda/attention_prompt.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <string>

#include "tests/gpu/cuda_kernel_bench/bench.h"

namespace granary::gpu::cuda::bench {
namespace {

// f16 scores' factors, weights and V: 11 bits each, averaged over many cells.
constexpr double kTolerance = 2e-3;

struct Shape {
    uint32_t heads, kv_heads, dim;
};

// One layer's cells of a conversation, beside another layer's place in each step.
class Cells {
  public:
    Cells(Bench& bench, const Shape& shape, uint32_t cells)
        : shape_(shape),
          steps_((cells + kStepCells - 1) / kStepCells),
          step_(size_t{kStepCells} * shape.kv_heads * shape.dim) {
        // Beyond 256 steps the cells repeat: times do not depend on them.
        const size_t own = std::min<size_t>(steps_, 256);
        host_ = random_halves(own * step_ * 2, 1, 11);
        const KvParts parts = kv_parts(KvFormat::f16, shape.kv_heads, shape.dim);
        view_ = {bench.allocate<std::byte>(steps_ * parts.bytes * 2) + parts.bytes,
                 parts.bytes * 2,
                 parts.k,
                 parts.v,
                 nullptr,
                 0};
        for (size_t i = 0; i < steps_; ++i)
            bench.device().copy(StreamId::compute, view_.base + i * view_.step_bytes,
                                host_.data() + i % own * step_ * 2, parts.bytes);
        bench.synchronize();
    }
    const KvView& view() const { return view_; }
    const Shape& shape() const { return shape_; }
    // Of all cells as laid out on the device: [steps][K, V][1024][kv_heads][dim].
    const uint16_t* k(uint32_t cell, uint32_t head) const {
        return host_.data() + cell / kStepCells * step_ * 2 +
               (size_t{cell % kStepCells} * shape_.kv_heads + head) * shape_.dim;
    }
    const uint16_t* v(uint32_t cell, uint32_t head) const { return k(cell, head) + step_; }

    // The tensor copy engine's description of K or V.
    TensorMap map(const Bench& bench, const KvPart& part, uint32_t cells) const {
        TensorMap map;
        const uint64_t sizes[] = {shape_.dim, shape_.kv_heads, kStepCells, steps_};
        const uint64_t strides[] = {shape_.dim * 2, part.code_row, view_.step_bytes};
        const uint32_t box[] = {64, 1, cells, 1}, steps[] = {1, 1, 1, 1};
        constexpr int kFloat16 = 6, kSwizzle128 = 3, kPromote256 = 3;
        bench.check(bench.driver().tensor_map_encode(&map, kFloat16, 4,
                                                     view_.base + part.code_offset, sizes, strides,
                                                     box, steps, 0, kSwizzle128, kPromote256, 0),
                    "cuTensorMapEncodeTiled");
        return map;
    }

  private:
    Shape shape_;
    size_t steps_, step_;
    std::vector<uint16_t> host_;
    KvView view_;
};

struct Variant {
    const char *file, *kernel;
    AttentionLaunch launch;
    bool maps;
};
std::vector<Variant> variants(uint32_t dim) {
    if (dim == 128)
        return {{"attention_prompt_wgmma", "attention_prompt_wgmma_128", kAttentionWgmma128, true},
                {"attention_prompt", "attention_prompt_128", kAttentionMma128, false}};
    return {{"attention_prompt_wgmma", "attention_prompt_wgmma_256", kAttentionWgmma256, true},
            {"attention_prompt", "attention_prompt_256", kAttentionMma256, false}};
}

class Chunk {
  public:
    Chunk(Bench& bench, const Cells& cells, uint32_t n, uint32_t first_cell)
        : bench_(bench), cells_(cells), shape_(cells.shape()) {
        job_.n = n;
        job_.first_cell = first_cell;
        const size_t values = size_t{n} * shape_.heads * shape_.dim;
        q_.resize(values);
        in_parallel(n, [&](size_t token) {
            Random random(first_cell + token);
            for (size_t i = 0; i < values / n; ++i)
                q_[token * (values / n) + i] = random.symmetric() * 6;
        });
        const float scale = 1.442695041f / std::sqrt(static_cast<float>(shape_.dim));
        const size_t rows = size_t{n} * shape_.heads;
        job_ = {bench.uploaded(q_),
                cells.view(),
                shape_.heads,
                shape_.kv_heads,
                shape_.dim,
                n,
                first_cell,
                scale,
                0,
                0,
                {bench.allocate<SoftmaxRow>(rows), bench.allocate<float>(values)},
                {bench.allocate<SoftmaxRow>(rows * cuts()), bench.allocate<float>(values * cuts())},
                nullptr,
                0};
    }

    uint32_t cuts() const { return (job_.first_cell + job_.n - 1) / kAttentionCut + 1; }
    // Cuts side by side while there are fewer blocks than multiprocessors.
    uint32_t good_at_once(const Variant& variant) const {
        const Size3 one = grid(variant, 1);
        const auto processors = static_cast<uint32_t>(bench_.facts().processors);
        return std::clamp(processors / (one.x * one.y) + 1, 1u, cuts());
    }
    double flop() const {
        const double visible = job_.n * (double(job_.first_cell) + (job_.n + 1) / 2.);
        return 4 * visible * shape_.heads * shape_.dim;
    }
    Size3 grid(const Variant& variant, uint32_t at_once) const {
        return {query_tiles(job_.n, shape_.heads / shape_.kv_heads, variant.launch.rows),
                shape_.kv_heads, at_once};
    }
    void run(const Variant& variant, Function function, uint32_t at_once) {
        TensorMap k, v;
        if (variant.maps) {
            k = cells_.map(bench_, job_.kv.k, variant.launch.cells);
            v = cells_.map(bench_, job_.kv.v, variant.launch.cells);
        }
        for (uint32_t cut = 0; cut < cuts(); cut += at_once) {
            AttentionPrompt job = job_;
            job.first_cut = cut;
            job.cuts = std::min(at_once, cuts() - cut);
            if (at_once == 1) job.cut = {};
            if (variant.maps)
                bench_.launch(function, grid(variant, job.cuts), variant.launch.threads,
                              variant.launch.shared, job, k, v);
            else
                bench_.launch(function, grid(variant, job.cuts), variant.launch.threads,
                              variant.launch.shared, job);
            if (at_once > 1)
                bench_.launch(bench_.find("attention_fold", "attention_fold"),
                              {(job_.n * shape_.heads + 7) / 8, 1, 1}, 256, 0, job);
        }
    }
    std::vector<float> outputs(const Variant& variant, Function function, uint32_t at_once) {
        const size_t rows = size_t{job_.n} * shape_.heads;
        bench_.fill(job_.running.values, 0xff, q_.size() * 4);
        bench_.fill(job_.running.rows, 0xff, rows * sizeof(SoftmaxRow));
        bench_.fill(job_.cut.values, 0xff, q_.size() * 4 * cuts());
        bench_.fill(job_.cut.rows, 0xff, rows * cuts() * sizeof(SoftmaxRow));
        run(variant, function, at_once);
        return bench_.download(static_cast<const float*>(job_.running.values), q_.size());
    }
    // Over `rows` (token, head) rows, the last tokens among them; NaN where poison was left.
    double error(const std::vector<float>& out, uint32_t rows) const {
        RelativeError sum;
        std::mutex lock;
        const uint32_t all = job_.n * shape_.heads;
        in_parallel(std::min(rows, all), [&](size_t number) {
            Random random(number);
            const uint32_t row = rows >= all       ? static_cast<uint32_t>(number)
                                 : number % 4 == 0 ? all - 1 - random.below(shape_.heads)
                                                   : random.below(all);
            const uint32_t head = row % shape_.heads / (shape_.heads / shape_.kv_heads);
            const uint32_t count = job_.first_cell + row / shape_.heads + 1, dim = shape_.dim;
            const float* const q = q_.data() + size_t{row} * dim;
            std::vector<double> score(count), result(dim);
            double top = -INFINITY, total = 0;
            for (uint32_t c = 0; c < count; ++c) {
                const uint16_t* const k = cells_.k(c, head);
                double dot = 0;
                for (uint32_t i = 0; i < dim; ++i) dot += double(q[i]) * half_value(k[i]);
                score[c] = dot / std::sqrt(double(dim));
                top = std::max(top, score[c]);
            }
            for (uint32_t c = 0; c < count; ++c) {
                const double weight = std::exp(score[c] - top);
                total += weight;
                const uint16_t* const v = cells_.v(c, head);
                for (uint32_t i = 0; i < dim; ++i) result[i] += weight * half_value(v[i]);
            }
            const std::lock_guard guard(lock);
            for (uint32_t i = 0; i < dim; ++i)
                sum.add(out[size_t{row} * dim + i], result[i] / total);
        });
        const bool poison =
            std::any_of(out.begin(), out.end(), [](float value) { return std::isnan(value); });
        return poison ? std::nan("") : sum.value();
    }

  private:
    Bench& bench_;
    const Cells& cells_;
    const Shape shape_;
    std::vector<float> q_;
    AttentionPrompt job_ = {};
};

void check_odd(Bench& bench, const Shape& shape) {
    const size_t mark = bench.mark();
    const Cells cells(bench, shape, 34000);
    for (const Variant& variant : variants(shape.dim)) {
        const Function function = bench.find(variant.file, variant.kernel);
        if (!function) continue;
        const auto name = [&](const std::string& what) {
            return std::string(variant.kernel) + " with " + std::to_string(shape.heads) + "/" +
                   std::to_string(shape.kv_heads) + " heads: " + what;
        };
        const size_t inner = bench.mark();
        // Begins in one cut and ends in the next.
        Chunk chunk(bench, cells, 301, 16200);
        const auto out = chunk.outputs(variant, function, 1);
        const double error = chunk.error(out, 200);
        bench.expect(error < kTolerance, name("relative error " + std::to_string(error)));
        bench.expect(std::memcmp(out.data(), chunk.outputs(variant, function, 2).data(),
                                 out.size() * 4) == 0,
                     name("other bits with cuts side by side"));
        Chunk part(bench, cells, 77, 16299);
        const auto some = part.outputs(variant, function, 1);
        bench.expect(std::memcmp(some.data(), out.data() + size_t{99} * shape.heads * shape.dim,
                                 some.size() * 4) == 0,
                     name("other bits in a shorter chunk"));
        for (const auto& [n, first] : {std::pair{1u, 0u}, {65u, 0u}, {3u, 33333u}}) {
            Chunk few(bench, cells, n, first);
            const auto one = few.outputs(variant, function, 1);
            const double own = few.error(one, n * shape.heads);
            const std::string at = std::to_string(n) + " at " + std::to_string(first);
            bench.expect(own < kTolerance, name(at + ", relative error " + std::to_string(own)));
            bench.expect(std::memcmp(one.data(), few.outputs(variant, function, 3).data(),
                                     one.size() * 4) == 0,
                         name(at + ", other bits with cuts side by side"));
        }
        bench.release(inner);
    }
    bench.release(mark);
}

struct Work {
    uint32_t n, depth;
};

void measure(Bench& bench, const char* model, const Shape& shape, const std::vector<Work>& works) {
    uint32_t most = 0;
    for (const Work& work : works) most = std::max(most, work.n + work.depth);
    const size_t mark = bench.mark();
    const Cells cells(bench, shape, most);
    for (const Work& work : works) {
        const size_t inner = bench.mark();
        Chunk chunk(bench, cells, work.n, work.depth);
        for (const Variant& variant : variants(shape.dim)) {
            const Function function = bench.find(variant.file, variant.kernel);
            if (!function) continue;
            const uint32_t at_once = chunk.good_at_once(variant);
            const double error = work.n + work.depth > 262144
                                     ? -1
                                     : chunk.error(chunk.outputs(variant, function, at_once), 64);
            const auto time = bench.time([&] { chunk.run(variant, function, at_once); });
            const double tflops = chunk.flop() / time.milliseconds * 1e-9;
            const std::string what = std::string(model) + " " + std::to_string(work.n) + " at " +
                                     std::to_string(work.depth);
            bench.add({"attention", what, variant.kernel, time.milliseconds, time.spread, tflops, 0,
                       tflops / bench.limit_f16, error});
            bench.expect(error < kTolerance, what + " by " + variant.kernel);
        }
        bench.release(inner);
    }
    bench.release(mark);
}

}  // namespace

void attention(Bench& bench, Depth depth) {
    check_odd(bench, {12, 4, 128});
    check_odd(bench, {5, 1, 128});
    check_odd(bench, {4, 2, 256});
    check_odd(bench, {7, 1, 256});
    if (depth == Depth::checks) return;
    const bool full = depth == Depth::full;
    std::vector<Work> works{{4096, 0}, {512, 32768}, {4096, 32768}};
    if (full) works.insert(works.end(), {{2048, 0}, {8192, 0}, {4096, 131072}});
    measure(bench, "32/4 heads of 128,", {32, 4, 128}, works);
    if (full) works.push_back({2048, 500000});
    measure(bench, "16/2 heads of 256,", {16, 2, 256}, works);
}

}  // namespace granary::gpu::cuda::bench

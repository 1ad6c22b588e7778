// SPDX-License-Identifier: GPL-3.0-or-later
// Expert matmuls of prompts: every output written, a sample of outputs of every expert against dot
// products in double precision, the same bits at every chunk size, and times at real shapes.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>
#include <string>

#include "gpu/cuda/expert_matmul.h"
#include "gpu/cuda/ordered_rows.h"
#include "gpu/host/half.h"
#include "tests/gpu/cuda_kernel_bench/bench.h"

namespace granary::gpu::cuda::bench {
namespace {

struct Case {
    const char* model;
    bool gate_up;  // else down
    WeightType type;
    uint32_t experts, used, cols, features;
};

// f16 weights and activations, f32 sums: 3e-4 is what rounding to 11 bits costs.
constexpr double kTolerance = 1e-3;

struct Layer {
    Case shape;
    size_t matrix_bytes;
    std::vector<std::byte> weights;  // [experts][gate, up | down]
    ExpertEntry* entries;            // on the device

    const std::byte* matrix(uint32_t expert, uint32_t number) const {
        return weights.data() + (size_t{expert} * (shape.gate_up ? 2 : 1) + number) * matrix_bytes;
    }
};

// Random codes and scales; weights have a standard deviation of about 0.02.
Layer make_layer(Bench& bench, const Case& shape) {
    Layer layer{shape, row_bytes(shape.type, shape.cols) * shape.features, {}, nullptr};
    const uint32_t matrices = shape.gate_up ? 2 : 1;
    layer.weights.resize(layer.matrix_bytes * shape.experts * matrices);
    const size_t block = weight_type_info(shape.type).block_bytes;
    in_parallel(size_t{shape.experts} * matrices, [&](size_t number) {
        Random random(number + 1);
        std::byte* const at = layer.weights.data() + number * layer.matrix_bytes;
        for (size_t i = 0; i + 8 <= layer.matrix_bytes; i += 8) {
            const uint64_t bits = random.next();
            std::memcpy(at + i, &bits, 8);
        }
        const auto set = [&](size_t i, float value) {
            const uint16_t half = host::float_to_half(value * (1 + random.symmetric() / 2));
            std::memcpy(at + i, &half, 2);
        };
        for (size_t i = 0; i < layer.matrix_bytes; i += block) {
            if (shape.type == WeightType::q4_k || shape.type == WeightType::q5_k) {
                set(i, shape.type == WeightType::q4_k ? 1.4e-4f : 7e-5f);
                set(i + 2, 1e-3f);
            } else if (shape.type == WeightType::q8_0) {
                set(i, 2.7e-4f);
            } else {
                set(i + 208, 1.5e-5f);
            }
        }
    });
    const std::byte* const device = bench.uploaded(layer.weights);
    std::vector<ExpertEntry> entries(shape.experts);
    for (uint32_t i = 0; i < shape.experts; ++i) {
        const std::byte* const at = device + size_t{i} * matrices * layer.matrix_bytes;
        entries[i] = shape.gate_up ? ExpertEntry{at, at + layer.matrix_bytes, nullptr}
                                   : ExpertEntry{nullptr, nullptr, at};
    }
    layer.entries = bench.uploaded(entries);
    return layer;
}

// Uniform routing without repeats; the routes of the first tokens do not depend on how many follow.
struct Sorted {
    std::vector<int32_t> expert;        // [routes]
    std::vector<int32_t> first, order;  // as in Routes
};
Sorted make_routes(uint32_t tokens, const Case& shape) {
    Sorted routes;
    Random random(7);
    std::vector<int32_t> count(shape.experts);
    for (uint32_t i = 0; i < tokens; ++i)
        for (uint32_t rank = 0; rank < shape.used; ++rank) {
            int32_t expert;
            do expert = static_cast<int32_t>(random.below(shape.experts));
            while (std::find(routes.expert.end() - rank, routes.expert.end(), expert) !=
                   routes.expert.end());
            routes.expert.push_back(expert);
            ++count[expert];
        }
    routes.first.assign(shape.experts + 1, 0);
    std::partial_sum(count.begin(), count.end(), routes.first.begin() + 1);
    routes.order.resize(routes.expert.size());
    std::vector<int32_t> next(routes.first.begin(), routes.first.end() - 1);
    for (size_t i = 0; i < routes.expert.size(); ++i)
        routes.order[next[routes.expert[i]]++] = static_cast<int32_t>(i);
    return routes;
}

std::string kernel_name(const Case& shape) {
    std::string type(weight_type_info(shape.type).name);
    std::transform(type.begin(), type.end(), type.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    return (shape.gate_up ? "expert_gate_up_wgmma_" : "expert_down_wgmma_") + type;
}
uint32_t shared_bytes(WeightType type) {
    switch (type) {
        case WeightType::q4_k:
            return kExpertWgmma.shared_q4_k;
        case WeightType::q5_k:
            return kExpertWgmma.shared_q5_k;
        case WeightType::q6_k:
            return kExpertWgmma.shared_q6_k;
        default:
            return kExpertWgmma.shared_q8_0;
    }
}

// One chunk through one layer.
class Chunk {
  public:
    Chunk(Bench& bench, const Layer& layer, uint32_t tokens)
        : bench_(bench), layer_(layer), shape_(layer.shape), routes_(make_routes(tokens, shape_)) {
        const uint32_t rows = shape_.gate_up ? tokens : count();
        x_ = random_halves(size_t{rows} * shape_.cols, 1.7f, 3);
        if (!shape_.gate_up) {  // made by route, kept as sorted
            std::vector<uint16_t> sorted(x_.size());
            in_parallel(count(), [&](size_t i) {
                std::copy_n(x_.data() + size_t(routes_.order[i]) * shape_.cols, shape_.cols,
                            sorted.data() + i * shape_.cols);
            });
            x_.swap(sorted);
        }
        ExpertList list{shape_.experts, {}};
        std::iota(list.expert, list.expert + shape_.experts, 0);
        const int32_t* const first = bench.uploaded(routes_.first);
        auto* const tiles = bench.allocate<ExpertTile>(max_expert_tiles(count(), shape_.experts));
        auto* const tile_count = bench.allocate<int32_t>(1);
        bench.launch(bench.find("expert_tiles", "expert_tiles"), {1, 1, 1}, 1024, 0, list, first,
                     tiles, tile_count);
        job_ = {tiles,
                tile_count,
                layer.entries,
                bench.uploaded(routes_.order),
                shape_.used,
                shape_.cols,
                shape_.features,
                bench.uploaded(x_),
                bench.allocate<uint16_t>(size_t{count()} * shape_.features)};
    }

    uint32_t count() const { return static_cast<uint32_t>(routes_.order.size()); }
    double flop() const {
        return 2. * count() * shape_.cols * shape_.features * (shape_.gate_up ? 2 : 1);
    }
    // Each input read once, each output written once.
    double bytes() const {
        uint32_t routed = 0;
        for (uint32_t i = 0; i < shape_.experts; ++i)
            routed += routes_.first[i + 1] > routes_.first[i];
        return double(routed) * static_cast<double>(layer_.matrix_bytes) *
                   (shape_.gate_up ? 2 : 1) +
               double(x_.size()) * 2 + double(count()) * shape_.features * 2;
    }

    void launch(Function function) {
        bench_.launch(
            function,
            {static_cast<uint32_t>(bench_.facts().processors) * kExpertWgmma.blocks, 1, 1},
            kExpertWgmma.threads, shared_bytes(shape_.type), job_);
    }

    // Outputs by route in natural columns, after a launch over poison.
    std::vector<float> outputs(Function function) {
        const size_t values = size_t{count()} * shape_.features;
        bench_.fill(job_.out, 0xff, values * 2);
        launch(function);
        std::vector<float> out(values);
        const auto halves = bench_.download(static_cast<const uint16_t*>(job_.out), values);
        in_parallel(count(), [&](size_t i) {
            const size_t row = shape_.gate_up ? routes_.order[i] : i;
            for (uint32_t f = 0; f < shape_.features; ++f)
                out[row * shape_.features + f] = half_value(
                    halves[i * shape_.features + (shape_.gate_up ? ordered_column(f) : f)]);
        });
        return out;
    }

    // Of `features` features of every expert, for all of its routes; NaN where any output at all
    // was left as poison.
    double error(const std::vector<float>& out, uint32_t features) const {
        RelativeError sum;
        std::mutex lock;
        bool poison = false;
        in_parallel(shape_.experts, [&](size_t expert) {
            RelativeError mine;
            bool bad = false;
            std::vector<float> gate(shape_.cols), up(shape_.cols);
            Random random(expert);
            for (uint32_t i = 0; i < std::min(features, shape_.features); ++i) {
                const uint32_t f = features >= shape_.features ? i : random.below(shape_.features);
                const size_t row = row_bytes(shape_.type, shape_.cols) * f;
                const auto index = static_cast<uint32_t>(expert);
                decode_row(shape_.type, layer_.matrix(index, 0) + row, gate.data(), shape_.cols);
                if (shape_.gate_up)
                    decode_row(shape_.type, layer_.matrix(index, 1) + row, up.data(), shape_.cols);
                for (int32_t place = routes_.first[expert]; place < routes_.first[expert + 1];
                     ++place) {
                    const int32_t route = routes_.order[place];
                    const uint16_t* const x =
                        x_.data() +
                        size_t(shape_.gate_up ? route / int32_t(shape_.used) : place) * shape_.cols;
                    double one = 0, two = 0;
                    for (uint32_t c = 0; c < shape_.cols; ++c) {
                        const double value = half_value(x[ordered_column(c)]);
                        one += gate[c] * value;
                        two += up[c] * value;
                    }
                    mine.add(out[size_t(route) * shape_.features + f],
                             shape_.gate_up ? one / (1 + std::exp(-one)) * two : one);
                }
            }
            for (int32_t place = routes_.first[expert]; place < routes_.first[expert + 1]; ++place)
                for (uint32_t f = 0; f < shape_.features; ++f)
                    bad |= std::isnan(out[size_t(routes_.order[place]) * shape_.features + f]);
            const std::lock_guard guard(lock);
            sum.add(mine);
            poison |= bad;
        });
        return poison ? std::nan("") : sum.value();
    }

  private:
    Bench& bench_;
    const Layer& layer_;
    const Case shape_;
    Sorted routes_;
    std::vector<uint16_t> x_;
    ExpertMatmul job_ = {};
};

std::string describe(const Case& shape, uint32_t tokens) {
    return std::string(shape.model) + (shape.gate_up ? " gate+up " : " down ") +
           std::string(weight_type_info(shape.type).name) + " " + std::to_string(tokens);
}

void check_odd(Bench& bench, const Case& shape) {
    const Function function = bench.find("expert_matmul_wgmma", kernel_name(shape));
    if (!function) return;
    const size_t mark = bench.mark();
    const Layer layer = make_layer(bench, shape);
    std::vector<float> longest;
    for (const uint32_t tokens : {403u, 131u, 37u, 1u}) {
        const size_t inner = bench.mark();
        Chunk chunk(bench, layer, tokens);
        const auto out = chunk.outputs(function);
        const double error = chunk.error(out, tokens > 200 ? 64 : shape.features);
        const std::string what = describe(shape, tokens);
        bench.expect(error < kTolerance, what + ": relative error " + std::to_string(error));
        if (longest.empty())
            longest = out;
        else
            bench.expect(std::memcmp(out.data(), longest.data(), out.size() * 4) == 0,
                         what + ": other bits than in a longer chunk");
        bench.release(inner);
    }
    bench.release(mark);
}

void measure(Bench& bench, const Case& shape, const std::vector<uint32_t>& chunks) {
    const Function function = bench.find("expert_matmul_wgmma", kernel_name(shape));
    if (!function) return;
    const size_t mark = bench.mark();
    const Layer layer = make_layer(bench, shape);
    for (const uint32_t tokens : chunks) {
        const size_t inner = bench.mark();
        Chunk chunk(bench, layer, tokens);
        const double error = tokens > 4096 ? -1 : chunk.error(chunk.outputs(function), 3);
        const auto time = bench.time([&] { chunk.launch(function); });
        const double tflops = chunk.flop() / time.milliseconds * 1e-9;
        const double rate = chunk.bytes() / time.milliseconds * 1e-6;
        bench.add({"experts", describe(shape, tokens), kernel_name(shape), time.milliseconds,
                   time.spread, tflops, rate,
                   std::max(tflops / bench.limit_f16, rate / bench.limit_copy), error});
        bench.expect(tokens > 4096 || error < kTolerance, describe(shape, tokens));
        bench.release(inner);
    }
    bench.release(mark);
}

}  // namespace

void experts(Bench& bench, Depth depth) {
    using enum WeightType;
    check_odd(bench, {"odd", true, q4_k, 5, 3, 768, 672});
    check_odd(bench, {"odd", false, q4_k, 7, 2, 512, 1184});
    check_odd(bench, {"odd", false, q6_k, 3, 1, 768, 288});
    for (const WeightType type : {q5_k, q6_k, q8_0})
        check_odd(bench, {"odd", true, type, 5, 3, 768, 672});
    for (const WeightType type : {q5_k, q8_0})
        check_odd(bench, {"odd", false, type, 7, 2, 512, 1184});
    if (depth == Depth::checks) return;
    const std::vector<uint32_t> chunks = depth == Depth::full
                                             ? std::vector<uint32_t>{512, 4096, 8192}
                                             : std::vector<uint32_t>{512, 4096};
    const char* const small = "Qwen3-30B";
    const char* const large = "Qwen3.6-35B";
    measure(bench, {small, true, q4_k, 128, 8, 2048, 768}, chunks);
    measure(bench, {small, false, q4_k, 128, 8, 768, 2048}, chunks);
    measure(bench, {small, false, q6_k, 128, 8, 768, 2048}, chunks);
    measure(bench, {large, true, q4_k, 256, 8, 2048, 512}, chunks);
    measure(bench, {large, false, q4_k, 256, 8, 512, 2048}, chunks);
    measure(bench, {large, false, q5_k, 256, 8, 512, 2048}, chunks);
    measure(bench, {large, false, q6_k, 256, 8, 512, 2048}, chunks);
    measure(bench, {"its shared one", true, q8_0, 1, 1, 2048, 512}, chunks);
    measure(bench, {"its shared one", false, q8_0, 1, 1, 512, 2048}, chunks);
}

}  // namespace granary::gpu::cuda::bench

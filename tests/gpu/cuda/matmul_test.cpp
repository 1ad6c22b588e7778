// SPDX-License-Identifier: GPL-3.0-or-later
// Dense matrices of every type against the host's f32 arithmetic.
#include <array>

#include "tests/gpu/cuda/support.h"

namespace granary::gpu::cuda::test {
namespace {

// Prompts: activations are f16 for both sides; what differs is weights rounded to 11 bits (2^-12 at
// most, of scale and product each) and the order of sums. Decode steps: activations are rounded to
// 2,032ths of the largest of 32, 2.4e-4 of what evenly spread ones are.
constexpr double kFast = 6e-4;
constexpr double kExact = 1e-5;  // f32 sums in another order
// Weights exact, activations in 16 bits: a step is 2 max|x| / 64,516, its error 0.29 steps.
constexpr double kInt8 = 4e-5;
constexpr WeightType kInt8Types[] = {WeightType::q4_k, WeightType::q6_k, WeightType::q8_0};

// A number of columns that the type's blocks allow and that is not a multiple of 256.
uint32_t odd_cols(WeightType type, uint32_t blocks) {
    const uint32_t block = weight_type_info(type).block_elements;
    return block == 256 ? blocks * 256 : blocks * 256 + 32 * 3;
}

std::vector<float> as_halves(std::vector<float> values) {
    for (float& value : values) value = host::half_to_float(host::float_to_half(value));
    return values;
}

// Codes of activations with these values; a decode step's are made from in.values.
std::byte* coded(Gpu& gpu, const Activations& in, const std::vector<float>& values) {
    if (!in.decode) return Array<std::byte>(gpu, to_ordered(values, in.rows, in.cols));
    Activations made = in;
    made.codes = gpu.allocate(in.rows * gpu.kernels().code_bytes(in.cols));
    gpu.kernels().quantise(made);
    return made.codes;
}

class MatmulTest : public CudaTest {
  protected:
    struct Run {
        std::vector<float> got, exact;
    };
    // Both sides' results of the same job; `add` to ones.
    Run run(const RandomWeight& weight, const std::vector<float>& values, uint32_t rows,
            Arithmetic arithmetic, bool decode, bool add = false,
            CudaProducts products = CudaProducts::fastest) {
        const uint32_t cols = weight.weight.cols, outputs = weight.weight.rows;
        const size_t count = size_t{rows} * outputs;
        const Array<std::byte> data(gpu(), weight.data);
        // Poison follows: what is written beyond the last row is seen.
        Array<float> out(gpu(), count + 64);
        std::vector<float> start(count, add ? 1.0f : NAN);
        out.put(start);
        Activations in{nullptr, nullptr, rows, cols, decode};
        const std::vector<float> used(values.begin(), values.begin() + size_t{rows} * cols);
        if (arithmetic == Arithmetic::f32 || decode) in.values = Array<float>(gpu(), used);
        if (arithmetic == Arithmetic::fast) in.codes = coded(gpu(), in, used);
        Weight on_gpu = weight.weight;
        on_gpu.data = data;
        const Matmul job{on_gpu, out, add};
        kernels(products).matmul({&job, 1}, in);
        Run result{out.get(), std::vector<float>(count, add ? 1.0f : 0.0f)};
        for (size_t i = count; i < result.got.size(); ++i)
            EXPECT_TRUE(std::isnan(result.got[i])) << "written beyond the end: " << i - count;
        result.got.resize(count);
        std::vector<float> copy = used;
        const Matmul host_job{weight.weight, result.exact.data(), add};
        host().matmul({&host_job, 1}, {copy.data(), nullptr, rows, cols});
        return result;
    }
    void check_prompt(WeightType type, CudaProducts products, double tolerance) {
        gpu().reset();
        const std::string name(weight_type_info(type).name);
        Random random(5 + static_cast<unsigned>(type));
        const RandomWeight weight(type, 203, odd_cols(type, 3), random);
        const std::vector<float> values = as_halves(random.values(300 * weight.weight.cols));
        const auto of = [&](uint32_t rows) {
            return run(weight, values, rows, Arithmetic::fast, false, false, products);
        };
        const Run all = of(300);
        EXPECT_LT(distance(all.got, all.exact), tolerance) << name;
        for (const uint32_t rows : {1u, 7u, 40u, 129u}) {
            const Run few = of(rows);
            EXPECT_TRUE(std::memcmp(few.got.data(), all.got.data(), few.got.size() * 4) == 0)
                << name << ": " << rows << " rows give other bits than 300";
        }
    }
};

TEST_F(MatmulTest, DecodesEveryWeightExactly) {
    for (const WeightType type : kTypes) {
        Random random(17 + static_cast<unsigned>(type));
        const uint32_t cols = odd_cols(type, 2);
        const RandomWeight weight(type, 5, cols, random);
        std::vector<float> one(size_t{cols} * cols);
        for (size_t i = 0; i < cols; ++i) one[i * cols + i] = 1;
        const std::vector<float> got = run(weight, one, cols, Arithmetic::f32, false).got;
        size_t wrong = 0;
        for (size_t r = 0; r < 5; ++r)
            for (size_t c = 0; c < cols; ++c)
                wrong += got[c * 5 + r] != weight.decoded[r * cols + c];
        EXPECT_EQ(wrong, 0u) << weight_type_info(type).name;
    }
}

TEST_F(MatmulTest, EveryTypeInF32) {
    for (const WeightType type : kTypes) {
        Random random(3 + static_cast<unsigned>(type));
        const bool plain = weight_type_info(type).block_elements == 1;
        const RandomWeight weight(type, 37, plain ? 71 : odd_cols(type, 3), random);
        const std::vector<float> values = random.values(size_t{9} * weight.weight.cols);
        for (const uint32_t rows : {1u, 9u}) {
            const Run result = run(weight, values, rows, Arithmetic::f32, rows < 9);
            EXPECT_LT(distance(result.got, result.exact), kExact) << weight_type_info(type).name;
        }
    }
}

TEST_F(MatmulTest, EveryTypeOfAPrompt) {
    for (const WeightType type : kTypes) check_prompt(type, CudaProducts::fastest, kFast);
}

TEST_F(MatmulTest, EveryTypeOfAPromptInF16) {
    for (const WeightType type : kTypes) check_prompt(type, CudaProducts::f16, kFast);
}

TEST_F(MatmulTest, PromptInIntegers) {
    for (const WeightType type : kInt8Types) check_prompt(type, CudaProducts::int8, kInt8);
}

// Rows whose codes do not fit in the scratch come piece by piece.
TEST_F(MatmulTest, PromptInIntegersWithLittleScratch) {
    Random random(37);
    const RandomWeight weight(WeightType::q4_k, 96, 512, random);
    const std::vector<float> values = as_halves(random.values(300 * 512));
    const Run all = run(weight, values, 300, Arithmetic::fast, false, true, CudaProducts::int8);
    std::byte* const little = gpu().allocate(64 << 10);  // 56 rows
    kernels(CudaProducts::int8).set_prompt_scratch(little, 64 << 10);
    const Run pieces = run(weight, values, 300, Arithmetic::fast, false, true, CudaProducts::int8);
    gpu().restore_prompt_scratch(CudaProducts::int8);
    EXPECT_TRUE(std::memcmp(pieces.got.data(), all.got.data(), all.got.size() * 4) == 0);
    EXPECT_LT(distance(all.got, all.exact), kInt8);
}

// Large and tiny values of one row in groups of their own, zeros and one value alone.
TEST_F(MatmulTest, PromptInIntegersOfUnevenRows) {
    Random random(41);
    for (const WeightType type : kInt8Types) {
        const RandomWeight weight(type, 130, 768, random);
        std::vector<float> values = random.values(40 * 768);
        for (size_t i = 0; i < values.size(); ++i) {
            const size_t group = i / 32 % 24;
            values[i] *= group % 4 == 0 ? 30000.0f : group % 4 == 1 ? 1e-4f : 1.0f;
            if (group % 4 == 2 && i % 32 != group) values[i] = 0;
            if (group == 7) values[i] = 0;
        }
        const Run result =
            run(weight, as_halves(values), 40, Arithmetic::fast, false, false, CudaProducts::int8);
        EXPECT_LT(distance(result.got, result.exact), kInt8) << weight_type_info(type).name;
    }
}

TEST_F(MatmulTest, EveryTypeOfADecodeStep) {
    for (const WeightType type : kTypes)
        for (const uint32_t blocks : {1u, 3u, 18u}) {
            Random random(7 + static_cast<unsigned>(type));
            const RandomWeight weight(type, 91, odd_cols(type, blocks), random);
            const std::vector<float> values = as_halves(random.values(8 * weight.weight.cols));
            const Run all = run(weight, values, 8, Arithmetic::fast, true);
            EXPECT_LT(distance(all.got, all.exact), kFast)
                << weight_type_info(type).name << ' ' << blocks;
            for (uint32_t rows = 1; rows < 8; ++rows) {
                const Run few = run(weight, values, rows, Arithmetic::fast, true);
                EXPECT_TRUE(std::memcmp(few.got.data(), all.got.data(), few.got.size() * 4) == 0)
                    << weight_type_info(type).name << ": " << rows << " rows give other bits";
            }
            gpu().reset();
        }
}

// Wide codes and values: neither a product nor a sum may leave f32's range or become NaN.
TEST_F(MatmulTest, LargeActivations) {
    Random random(29);
    const RandomWeight weight(WeightType::q4_k, 64, 2048, random);
    std::vector<float> values = random.values(8 * 2048);
    for (float& value : values) value *= 60000;
    values = as_halves(values);
    for (const bool decode : {false, true}) {
        const Run result = run(weight, values, 8, Arithmetic::fast, decode);
        EXPECT_LT(distance(result.got, result.exact), kFast);
    }
}

TEST_F(MatmulTest, Adds) {
    Random random(11);
    const RandomWeight weight(WeightType::q8_0, 48, 96, random);
    const std::vector<float> values = as_halves(random.values(20 * 96));
    for (const auto arithmetic : {Arithmetic::fast, Arithmetic::f32})
        for (const uint32_t rows : {3u, 20u}) {
            const Run result = run(weight, values, rows, arithmetic, rows < 8, true);
            EXPECT_LT(distance(result.got, result.exact), kFast);
        }
}

TEST_F(MatmulTest, JobsOfDifferentTypesShareTheInput) {
    Random random(13);
    const WeightType types[] = {WeightType::q4_k, WeightType::q6_k, WeightType::f32,
                                WeightType::q8_0, WeightType::q2_k, WeightType::q4_k,
                                WeightType::q4_k, WeightType::q6_k, WeightType::q6_k,
                                WeightType::q4_0, WeightType::bf16};
    for (const bool decode : {true, false}) {
        const std::vector<float> values = as_halves(random.values(5 * 512));
        std::vector<RandomWeight> weights;
        std::vector<Array<float>> outs;
        std::vector<Matmul> jobs;
        uint32_t outputs = 3;
        for (const WeightType type : types) {
            weights.emplace_back(type, outputs, 512, random);
            outs.emplace_back(gpu(), 5 * outputs);
            Weight on_gpu = weights.back().weight;
            on_gpu.data = Array<std::byte>(gpu(), weights.back().data);
            jobs.push_back({on_gpu, outs.back(), false});
            outputs += 29;
        }
        Activations in{Array<float>(gpu(), values), nullptr, 5, 512, decode};
        in.codes = coded(gpu(), in, values);
        kernels().matmul(jobs, in);
        for (size_t i = 0; i < jobs.size(); ++i) {
            std::vector<float> exact(5 * jobs[i].weight.rows), copy = values;
            const Matmul job{weights[i].weight, exact.data(), false};
            host().matmul({&job, 1}, {copy.data(), nullptr, 5, 512});
            EXPECT_LT(distance(outs[i].get(), exact), kFast) << i;
        }
    }
}

// What a delta net takes in: the same bits whether a token's products end in it or others follow.
TEST_F(MatmulTest, InputsOfADeltaNetAreTheSameAsApart) {
    Random random(14);
    for (const auto& [of_x, of_gates] :
         cases<std::pair<WeightType, WeightType>>(1, {{WeightType::q4_k, WeightType::q8_0},
                                                      {WeightType::q6_k, WeightType::q4_k},
                                                      {WeightType::q8_0, WeightType::q6_k}})) {
        gpu().reset();
        // 168 channels and 5 heads: tiles have 16.
        const DeltaShape shape{.key_heads = 1, .value_heads = 5, .head_dim = 24, .taps = 4};
        const uint32_t heads = shape.value_heads, cols = 512;
        const RandomWeight qkv(of_x, shape.channels(), cols, random),
            gate(WeightType::q6_k, shape.width(), cols, random),
            alpha(of_gates, heads, cols, random), beta(of_gates, heads, cols, random);
        const Array<float> dt(gpu(), random.values(heads)), a(gpu(), random.values(heads)),
            kernel(gpu(), random.values(size_t{shape.channels()} * 4));
        const std::vector<float> tail = random.values(shape.tail_values());
        const Array<float> tails[] = {{gpu(), tail}, {gpu(), tail}};
        // Each token finds the tail as the one ahead has left it.
        for (uint32_t token = 0; token < 5; ++token) {
            const std::vector<float> values = random.values(cols);
            Activations in{Array<float>(gpu(), values), nullptr, 1, cols, true};
            in.codes = coded(gpu(), in, values);
            const auto run = [&](bool at_once) {
                const Array<float> x(gpu(), shape.channels()), z(gpu(), shape.width()),
                    of_alpha(gpu(), heads), of_beta(gpu(), heads), out(gpu(), shape.channels());
                std::vector<Matmul> jobs;
                for (const auto& [weight, to] : {std::pair(&qkv, x.data()),
                                                 {&gate, z.data()},
                                                 {&alpha, of_alpha.data()},
                                                 {&beta, of_beta.data()}}) {
                    Weight on_gpu = weight->weight;
                    on_gpu.data = Array<std::byte>(gpu(), weight->data);
                    jobs.push_back({on_gpu, to, false});
                }
                const Array<float>& kept = tails[at_once];
                const DeltaInputs to{dt, a, kernel, of_alpha, of_beta, x, kept, out};
                if (at_once)
                    kernels().matmul_gates_and_conv(jobs, in, shape, to);
                else
                    kernels().Kernels::matmul_gates_and_conv(jobs, in, shape, to);
                return std::array{z.get(), of_alpha.get(), of_beta.get(), kept.get(), out.get()};
            };
            const auto apart = run(false), at_once = run(true);
            for (size_t i = 0; i < apart.size(); ++i)
                EXPECT_TRUE(same_bits(at_once[i], apart[i])) << i << " of token " << token;
        }
    }
}

}  // namespace
}  // namespace granary::gpu::cuda::test

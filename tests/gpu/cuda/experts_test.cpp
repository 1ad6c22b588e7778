// SPDX-License-Identifier: GPL-3.0-or-later
// Experts of every type against the host's f32 arithmetic.
#include <numeric>

#include "tests/gpu/cuda/routes.h"
#include "tests/gpu/cuda/support.h"

namespace granary::gpu::cuda::test {
namespace {

// As for one matrix (2 x 3e-4), with what lies between them and the results rounded to f16.
constexpr double kFast = 1.2e-3;
// A decode step rounds both to 127ths of the largest of 32: 4e-3 of inputs that are evenly spread,
// three times that of products of two sums.
constexpr double kDecode = 2.5e-2;
constexpr double kExact = 1e-5;
// Against the host, whose experts see the same 8-bit codes: results rounded to f16 (0.29 x 2^-11 at
// 1.5 on average), and now and then a code of what lies between that f32 sums round the other way.
constexpr double kInt8 = 4e-4;
// Against f32: codes of 8 bits, an error of 0.29 x 1 / 127 of a group's largest value, twice.
constexpr double kEightBits = 2e-2;

struct Case {
    WeightType gate, up, down;
    uint32_t hidden, ffn;
};

struct SortedRoutes {
    std::vector<int32_t> expert, count, first, order;
    std::vector<float> weight;
};
SortedRoutes routed(uint32_t rows, uint32_t experts, uint32_t used, Random& random) {
    SortedRoutes to;
    to.count.assign(experts, 0);
    for (uint32_t row = 0; row < rows; ++row) {
        std::vector<int32_t> all(experts);
        std::iota(all.begin(), all.end(), 0);
        for (uint32_t rank = 0; rank < used; ++rank) {
            std::swap(all[rank],
                      all[rank + random.engine() % (experts - 1 - rank)]);  // not the last
            to.expert.push_back(all[rank]);
            ++to.count[all[rank]];
        }
    }
    to.first.assign(experts + 1, 0);
    std::partial_sum(to.count.begin(), to.count.end(), to.first.begin() + 1);
    to.order.resize(to.expert.size());
    std::vector<int32_t> next(to.first.begin(), to.first.end() - 1);
    for (size_t r = 0; r < to.expert.size(); ++r)
        to.order[next[to.expert[r]]++] = static_cast<int32_t>(r);
    to.weight.assign(to.expert.size(), 1);
    return to;
}
Routes view_of(const SortedRoutes& routes, uint32_t rows) {
    return {const_cast<int32_t*>(routes.expert.data()), const_cast<float*>(routes.weight.data()),
            const_cast<int32_t*>(routes.count.data()),  const_cast<int32_t*>(routes.first.data()),
            const_cast<int32_t*>(routes.order.data()),  rows};
}

class ExpertsTest : public CudaTest {
  protected:
    static constexpr uint32_t kExperts = 9, kUsed = 3;
    static inline const std::vector<int32_t> kAll = {0, 1, 2, 3, 4, 5, 6, 7, 8};

    // Results by route of experts `list`; NaN where nothing was written.
    struct Run {
        std::vector<float> got, exact;
    };
    // With 8-bit products `exact` is what the host has of its own codes.
    Run run(const Case& c, uint32_t rows, Arithmetic arithmetic, bool decode,
            const std::vector<int32_t>& list = kAll, CudaProducts products = CudaProducts::fastest,
            bool host_codes = false) {
        gpu().reset();
        Random random(101);
        const bool fast = arithmetic == Arithmetic::fast;
        std::vector<RandomWeight> weights;
        std::vector<ExpertEntry> on_host, on_gpu;
        for (uint32_t e = 0; e < kExperts; ++e) {
            weights.emplace_back(c.gate, c.ffn, c.hidden, random);
            weights.emplace_back(c.up, c.ffn, c.hidden, random);
            weights.emplace_back(c.down, c.hidden, c.ffn, random);
        }
        for (uint32_t e = 0; e < kExperts; ++e) {
            const auto at = [&](int i) { return weights[3 * e + i].data.data(); };
            const auto up = [&](int i) -> const std::byte* {
                return Array<std::byte>(gpu(), weights[3 * e + i].data);
            };
            on_host.push_back({at(0), at(1), at(2)});
            on_gpu.push_back({up(0), up(1), up(2)});
        }
        Random rows_random(7);  // the first rows do not depend on how many follow
        const SortedRoutes routes = routed(rows, kExperts, kUsed, rows_random);
        std::vector<float> values = Random(9).values(size_t{rows} * c.hidden);
        // Gate and up of about 1: between the matrices, and of the results, f16 is kept.
        double squares = 0;
        for (const float weight : weights[0].decoded) squares += double(weight) * double(weight);
        const auto scale = static_cast<float>(1.7 * std::sqrt(c.ffn / squares));
        for (float& value : values) value = host::half_to_float(host::float_to_half(scale * value));
        const ExpertShape shape{c.hidden, c.ffn, kExperts, kUsed, c.gate, c.up, c.down};
        const uint32_t count = rows * kUsed;

        const Array<float> out(gpu(), size_t{count} * c.hidden);
        Activations x{nullptr, nullptr, rows, c.hidden, decode};
        Activations hidden{nullptr, nullptr, count, c.ffn, decode};
        if (!fast || decode) x.values = Array<float>(gpu(), values);
        if (fast) {
            x.codes = Array<std::byte>(gpu(), to_ordered(values, rows, c.hidden));
            if (decode) kernels().quantise(x);
            hidden.codes = Array<std::byte>(gpu(), count * kernels().code_bytes(c.ffn));
        } else {
            hidden.values = Array<float>(gpu(), size_t{count} * c.ffn);
        }
        const Routes device_routes{
            Array<int32_t>(gpu(), routes.expert), Array<float>(gpu(), routes.weight),
            Array<int32_t>(gpu(), routes.count),  Array<int32_t>(gpu(), routes.first),
            Array<int32_t>(gpu(), routes.order),  rows};
        kernels(products).expert_ffn(shape, Array<ExpertEntry>(gpu(), on_gpu), list, device_routes,
                                     x, hidden, out);
        Run result{out.get(), std::vector<float>(size_t{count} * c.hidden, NAN)};
        if (fast) {
            std::vector<float> wide(result.got.size());
            for (size_t i = 0; i < wide.size(); ++i)
                wide[i] = host::load_half(reinterpret_cast<const char*>(result.got.data()) + 2 * i);
            result.got = wide;
        }
        const auto arithmetic_of_host = host_codes ? Arithmetic::fast : Arithmetic::f32;
        const Rows host_x(host(), rows, c.hidden, arithmetic_of_host);
        const Rows between(host(), count, c.ffn, arithmetic_of_host);
        std::copy(values.begin(), values.end(), host_x.view.values);
        host().quantise(host_x.view);
        host().expert_ffn(shape, on_host.data(), list, view_of(routes, rows), host_x.view,
                          between.view, result.exact.data());
        for (size_t i = 0; i < result.got.size(); ++i) {
            const bool expected = !std::isnan(result.exact[i]);
            if (expected == std::isnan(result.got[i])) {
                ADD_FAILURE() << "value " << i % c.hidden << " of route " << i / c.hidden
                              << (expected ? " was not written" : " was written");
                break;
            }
            if (!expected) result.got[i] = result.exact[i] = 0;
        }
        return result;
    }
    // Rows of more than one tile each.
    uint32_t many() const { return CudaTest::cases(1, {160u, 450u}).back(); }
    double fast_tolerance(const Case& c) {
        return c.gate == c.up && kernels().multiplies_integers(c.gate) ? kEightBits : kFast;
    }
    static std::string name(const Case& c) {
        return std::string(weight_type_info(c.gate).name) + ' ' +
               std::string(weight_type_info(c.down).name) + ' ' + std::to_string(c.ffn);
    }
    static std::vector<Case> cases() {
        std::vector<Case> all;
        for (const WeightType type : kTypes) {
            const bool wide = weight_type_info(type).block_elements == 256;
            all.push_back({type, type, type, wide ? 512u : 320u, wide ? 256u : 96u});
        }
        for (const WeightType type :
             {WeightType::q4_k, WeightType::q5_k, WeightType::q6_k, WeightType::q8_0})
            all.push_back({type, type, type, 512, 768});
        all.push_back({WeightType::q4_k, WeightType::q4_k, WeightType::q6_k, 512, 768});
        all.push_back({WeightType::q4_k, WeightType::q6_k, WeightType::q8_0, 768, 96});
        all.push_back({WeightType::q4_k, WeightType::q2_k, WeightType::f32, 256, 224});
        return all;
    }
};

TEST_F(ExpertsTest, EveryTypeInF32) {
    for (const Case& c : cases())
        for (const bool decode : {true, false}) {
            const Run result = run(c, decode ? 2 : 11, Arithmetic::f32, decode);
            EXPECT_LT(distance(result.got, result.exact), kExact) << name(c);
        }
}

TEST_F(ExpertsTest, EveryTypeOfAPrompt) {
    for (const Case& c : cases()) {
        const Run all = run(c, many(), Arithmetic::fast, false);
        EXPECT_LT(distance(all.got, all.exact), fast_tolerance(c)) << name(c);
        const Run few = run(c, 5, Arithmetic::fast, false);
        EXPECT_TRUE(std::memcmp(few.got.data(), all.got.data(), few.got.size() * 4) == 0)
            << name(c) << ": 5 rows give other bits than many";
    }
}

TEST_F(ExpertsTest, EveryTypeOfAPromptInF16) {
    for (const Case& c : cases()) {
        const Run all = run(c, many(), Arithmetic::fast, false, kAll, CudaProducts::f16);
        EXPECT_LT(distance(all.got, all.exact), kFast) << name(c);
    }
}

TEST_F(ExpertsTest, PromptInIntegers) {
    using enum WeightType;
    const Case cases[] = {{q4_k, q4_k, q4_k, 512, 256}, {q6_k, q6_k, q6_k, 512, 256},
                          {q8_0, q8_0, q8_0, 320, 96},  {q4_k, q4_k, q6_k, 512, 768},
                          {q8_0, q8_0, q8_0, 2048, 32}, {q6_k, q6_k, q8_0, 768, 160}};
    for (const Case& c : cases) {
        const auto of = [&](uint32_t rows, bool host_codes) {
            return run(c, rows, Arithmetic::fast, false, kAll, CudaProducts::int8, host_codes);
        };
        const Run all = of(many(), true);
        EXPECT_LT(distance(all.got, all.exact), kInt8) << name(c);
        for (const uint32_t rows : {5u, 31u, 140u}) {
            const Run few = of(rows, false);
            EXPECT_LT(distance(few.got, few.exact), kEightBits) << name(c);
            EXPECT_TRUE(std::memcmp(few.got.data(), all.got.data(), few.got.size() * 4) == 0)
                << name(c) << ": " << rows << " rows give other bits than many";
        }
    }
    const Run some =
        run(cases[3], 60, Arithmetic::fast, false, {1, 4, 8}, CudaProducts::int8, true);
    EXPECT_LT(distance(some.got, some.exact), kInt8);
}

// Where only gate and up have 8-bit products, or the two are of different types.
TEST_F(ExpertsTest, PromptPartlyInIntegers) {
    using enum WeightType;
    for (const Case& c : {Case{q4_k, q4_k, q5_k, 512, 256}, Case{q8_0, q8_0, f16, 320, 96},
                          Case{q5_k, q5_k, q6_k, 512, 256}, Case{q4_k, q6_k, q8_0, 768, 96}}) {
        const Run all = run(c, many(), Arithmetic::fast, false, kAll, CudaProducts::int8);
        EXPECT_LT(distance(all.got, all.exact), kEightBits) << name(c);
        const Run few = run(c, 5, Arithmetic::fast, false, kAll, CudaProducts::int8);
        EXPECT_TRUE(std::memcmp(few.got.data(), all.got.data(), few.got.size() * 4) == 0)
            << name(c);
    }
}

TEST_F(ExpertsTest, EveryTypeOfADecodeStep) {
    for (const Case& c : cases()) {
        const Run all = run(c, 8, Arithmetic::fast, true);
        EXPECT_LT(distance(all.got, all.exact), kDecode) << name(c);
        for (const uint32_t rows : {1u, 3u}) {
            const Run few = run(c, rows, Arithmetic::fast, true);
            EXPECT_TRUE(std::memcmp(few.got.data(), all.got.data(), few.got.size() * 4) == 0)
                << name(c) << ": " << rows << " rows give other bits than 8";
        }
    }
}

// One launch for the routed experts and the shared one gives the bits of one after the other.
TEST_F(ExpertsTest, SharedBesideRouted) {
    using enum WeightType;
    struct Both {
        Case routed;
        Case shared;
    };
    const Both cases[] = {{{q4_k, q4_k, q6_k, 2048, 512}, {q8_0, q8_0, q8_0, 2048, 512}},
                          {{q4_k, q4_k, q4_k, 512, 256}, {q4_k, q4_k, q6_k, 512, 256}},
                          {{q6_k, q6_k, q6_k, 512, 768}, {q4_0, q4_0, q4_0, 512, 768}},
                          {{q4_k, q4_k, q4_k, 512, 256}, {q8_0, q8_0, q8_0, 512, 96}},
                          {{q8_0, q8_0, q8_0, 320, 96}, {f32, f32, f32, 320, 96}}};
    for (const Both& both : cases) {
        gpu().reset();
        Random random(33);
        const uint32_t cols = both.routed.hidden;
        std::vector<ExpertEntry> entries;
        const auto weight = [&](WeightType type, uint32_t rows, uint32_t columns) {
            const RandomWeight of(type, rows, columns, random);
            return static_cast<const std::byte*>(Array<std::byte>(gpu(), of.data));
        };
        const auto add = [&](const Case& c) {
            const std::byte* const gate = weight(c.gate, c.ffn, c.hidden);
            const std::byte* const up = weight(c.up, c.ffn, c.hidden);
            entries.push_back({gate, up, weight(c.down, c.hidden, c.ffn)});
        };
        for (uint32_t e = 0; e < kExperts; ++e) add(both.routed);
        add(both.shared);
        const ExpertEntry* const table = Array<ExpertEntry>(gpu(), entries);
        const auto shape_of = [](const Case& c, uint32_t experts, uint32_t used) {
            return ExpertShape{c.hidden, c.ffn, experts, used, c.gate, c.up, c.down};
        };
        const SharedExpert shared{shape_of(both.shared, 1, 1), table + kExperts,
                                  Array<float>(gpu(), random.values(cols))};
        const std::vector<float> values = random.values(cols);
        Activations x{Array<float>(gpu(), values),
                      Array<std::byte>(gpu(), to_ordered(values, 1, cols)), 1, cols, true};
        kernels().quantise(x);
        std::vector<std::vector<float>> outs, weights;
        for (const bool together : {false, true}) {
            SortedRoutes routes = routed(1, kExperts, kUsed, random);
            routes.expert = {4, 0, 7};
            routes.expert.resize(kUsed + 1);
            routes.weight = {0.5f, 0.25f, 0.25f, 0};
            routes.count.resize(kExperts);
            routes.order = {1, 0, 2, 0};
            const Array<float> its_weight(gpu(), routes.weight);
            const Routes view{Array<int32_t>(gpu(), routes.expert),
                              its_weight,
                              Array<int32_t>(gpu(), routes.count),
                              Array<int32_t>(gpu(), routes.first),
                              Array<int32_t>(gpu(), routes.order),
                              1,
                              true};
            const uint32_t ffn = std::max(both.routed.ffn, both.shared.ffn);
            const Activations hidden{
                nullptr, Array<std::byte>(gpu(), (kUsed + 1) * kernels().code_bytes(ffn)), kUsed,
                both.routed.ffn, true};
            const Array<float> out(gpu(), (kUsed + 1) * size_t{cols} / 2);  // f16
            const ExpertShape shape = shape_of(both.routed, kExperts, kUsed);
            if (together)
                kernels().expert_ffn_and_shared(shape, table, kAll, view, shared, x, hidden, out);
            else
                kernels().Kernels::expert_ffn_and_shared(shape, table, kAll, view, shared, x,
                                                         hidden, out);
            outs.push_back(out.get());
            weights.push_back(its_weight.get());
        }
        EXPECT_TRUE(same_bits(outs[0], outs[1])) << name(both.routed) << ", " << name(both.shared);
        EXPECT_EQ(weights[0], weights[1]) << name(both.routed);
        EXPECT_GT(weights[1][kUsed], 0);
    }
}

// Where every expert is there the experts' kernels choose by the logits: the bits are those of a
// router that chooses, also where a logit is no number.
TEST_F(ExpertsTest, RoutesAreChosenWhereExpertsAreRead) {
    using enum WeightType;
    struct Of {
        uint32_t experts, used;
        bool shared = false, broken = false, normalise = true;
        uint32_t cols = 512;
    };
    for (const Of& of : {Of{128, 8},
                         {.experts = 100, .used = 3, .shared = true},
                         {.experts = 256, .used = 8, .shared = true, .normalise = false},
                         {512, 10},
                         {9, 9},
                         {.experts = 8, .used = 1, .normalise = false},
                         // The fewest threads that a block has.
                         {.experts = 512, .used = 2, .cols = 1280},
                         {.experts = 128, .used = 8, .broken = true}}) {
        gpu().reset();
        Random random(34);
        constexpr uint32_t kFfn = 256;
        const uint32_t cols = of.cols;
        std::vector<ExpertEntry> entries;
        const auto weight = [&](WeightType type, uint32_t rows, uint32_t columns) {
            const RandomWeight made(type, rows, columns, random);
            return static_cast<const std::byte*>(Array<std::byte>(gpu(), made.data));
        };
        for (uint32_t e = 0; e < 9; ++e) {
            const std::byte* const gate = weight(q4_k, kFfn, cols);
            const std::byte* const up = weight(q4_k, kFfn, cols);
            entries.push_back({gate, up, weight(q6_k, cols, kFfn)});
        }
        const SharedExpert shared{{cols, kFfn, 1, 1, q4_k, q4_k, q6_k},
                                  Array<ExpertEntry>(gpu(), std::span(entries).last(1)),
                                  Array<float>(gpu(), random.values(cols))};
        std::vector<ExpertEntry> table;
        for (uint32_t e = 0; e < of.experts; ++e) table.push_back(entries[e % 8]);
        std::vector<float> router = random.values(size_t{of.experts} * cols);
        if (of.broken) router[cols * 5 + 7] = NAN;
        std::vector<int32_t> all(of.experts);
        std::iota(all.begin(), all.end(), 0);
        const Array<float> x(gpu(), random.values(cols)), norm(gpu(), random.values(cols)),
            of_router(gpu(), router);
        struct Result {
            std::vector<int32_t> expert, picks;
            std::vector<float> weight, out;
        };
        std::vector<Result> results;
        for (const bool late : {false, true}) {
            HostRoutes empty(1, of.experts, of.used + 1);
            const CardRoutes routed(gpu(), empty);
            const Array<int32_t> picks(gpu(), std::vector<int32_t>(of.used, -1));
            const Array<float> out(gpu(), (of.used + 1) * size_t{cols} / 2);  // f16
            DecodeExperts job;
            job.routing = {of.experts, of.used, of.normalise, 1.5f};
            job.router = {reinterpret_cast<const std::byte*>(of_router.data()), f32, of.experts,
                          cols};
            job.routes = routed.view;
            job.routes.decode = true;
            job.cache.experts = job.cache.slots = of.experts;
            job.cache.complete = true;
            job.cache.entries = Array<ExpertEntry>(gpu(), table);
            job.cache.picks = picks;
            job.shape = {cols, kFfn, of.experts, of.used, q4_k, q4_k, q6_k};
            job.list = all;
            job.shared = of.shared ? &shared : nullptr;
            job.hidden = {nullptr,
                          Array<std::byte>(gpu(), (of.used + 1) * kernels().code_bytes(kFfn)),
                          of.used, kFfn, true};
            job.out = static_cast<float*>(out);
            const Activations normed{Array<float>(gpu(), cols),
                                     Array<std::byte>(gpu(), kernels().code_bytes(cols)), 1, cols,
                                     true};
            if (late)
                kernels().norm_and_experts(x, norm, 1e-6f, normed, job);
            else
                kernels().Kernels::norm_and_experts(x, norm, 1e-6f, normed, job);
            results.push_back({routed.expert.get(), picks.get(), routed.weight.get(), out.get()});
        }
        const std::string what = std::to_string(of.experts) + " experts";
        EXPECT_EQ(results[0].expert, results[1].expert) << what;
        EXPECT_EQ(results[0].picks, results[1].picks) << what;
        EXPECT_TRUE(
            std::ranges::equal(results[1].picks, std::span(results[1].expert).first(of.used)))
            << what;
        EXPECT_TRUE(same_bits(results[0].weight, results[1].weight)) << what;
        EXPECT_TRUE(same_bits(results[0].out, results[1].out)) << what;
        if (of.broken) {
            EXPECT_EQ(results[1].picks[0], 0) << what;
        }
    }
}

TEST_F(ExpertsTest, OnlyListedOnesRun) {
    const Case c{WeightType::q4_k, WeightType::q4_k, WeightType::q6_k, 512, 256};
    for (const auto arithmetic : {Arithmetic::fast, Arithmetic::f32})
        for (const bool decode : {true, false}) {
            const Run result = run(c, decode ? 8 : 60, arithmetic, decode, {1, 4, 8});
            EXPECT_LT(distance(result.got, result.exact), decode ? kDecode : fast_tolerance(c));
        }
}

}  // namespace
}  // namespace granary::gpu::cuda::test

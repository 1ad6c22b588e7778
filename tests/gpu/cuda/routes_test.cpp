// SPDX-License-Identifier: GPL-3.0-or-later
// Routes against the host's.
#include "tests/gpu/cuda/routes.h"

#include <cmath>

namespace granary::gpu::cuda::test {
namespace {

TEST_F(CudaTest, RouteIsTheHosts) {
    Random random(20);
    struct Case {
        WeightType type;
        uint32_t rows, experts, used, cols;
    };
    const Case cases[] = {
        {WeightType::f32, 1, 128, 8, 2048},   {WeightType::f32, 8, 128, 8, 2048},
        {WeightType::f32, 9, 128, 8, 2048},   {WeightType::f32, 300, 256, 8, 2048},
        {WeightType::f32, 5, 512, 10, 2048},  {WeightType::f32, 333, 512, 10, 4096},
        {WeightType::f32, 3, 7, 3, 100},      {WeightType::f32, 77, 7, 7, 100},
        {WeightType::q8_0, 4, 33, 4, 96},     {WeightType::bf16, 40, 60, 4, 1408},
        {WeightType::f32, 2, 1000, 64, 2304}, {WeightType::f32, 20, 1000, 64, 2304},
    };
    for (const Case& at : cases) {
        const RandomWeight router(at.type, at.experts, at.cols, random);
        const std::vector<float> x = random.values(size_t{at.rows} * at.cols);
        const RouterShape shape{at.experts, at.used, at.rows % 2 == 0, 1.5f};
        HostRoutes expected(at.rows, at.experts, at.used);
        host().route(shape, router.weight, x.data(), expected.view);
        const Array<float> in(gpu(), x);
        const Array<std::byte> weights(gpu(), router.data);
        Weight weight = router.weight;
        weight.data = weights;
        for (const bool decode : {false, true}) {
            if (decode && at.rows > 8) continue;
            const CardRoutes routed(gpu(), at.rows, at.experts, at.used);
            Routes view = routed.view;
            view.decode = decode;
            kernels().route(shape, weight, in, view);
            HostRoutes got(at.rows, at.experts, at.used);
            got.expert = routed.expert.get();
            got.weight = routed.weight.get();
            const std::string what = std::to_string(at.rows) + " rows, " +
                                     std::to_string(at.experts) + (decode ? " decode" : "");
            // Logits are sums in another order: neighbours that are equal to 1e-5 may change
            // places.
            size_t other = 0;
            double worst = 0;
            for (size_t r = 0; r < got.expert.size(); ++r) {
                ASSERT_GE(got.expert[r], 0) << what;
                ASSERT_LT(got.expert[r], static_cast<int32_t>(at.experts)) << what;
                other += got.expert[r] != expected.expert[r];
                const double wanted = static_cast<double>(expected.weight[r]);
                worst =
                    std::max(worst, std::abs(static_cast<double>(got.weight[r]) - wanted) / wanted);
            }
            EXPECT_LE(other, got.expert.size() / 200) << what;
            EXPECT_LT(worst, 1e-4) << what;
            // What follows from the choice is exact.
            got.sort();
            if (!decode) {
                EXPECT_EQ(routed.count.get(), got.count) << what;
                EXPECT_EQ(routed.first.get(), got.first) << what;
                EXPECT_EQ(routed.order.get(), got.order) << what;
            }
            // A row's route does not depend on how many rows there are.
            const CardRoutes alone(gpu(), 1, at.experts, at.used);
            const size_t last = at.rows - 1;
            view = alone.view;
            view.decode = decode;
            kernels().route(shape, weight, in + last * at.cols, view);
            EXPECT_EQ(alone.expert.get(),
                      std::vector<int32_t>(got.expert.end() - at.used, got.expert.end()))
                << what;
            EXPECT_TRUE(
                same_bits(alone.weight.get(), {got.weight.end() - at.used, got.weight.end()}))
                << what;
        }
    }
}

TEST_F(CudaTest, ManyRoutesAreSortedExactly) {
    Random random(21);
    constexpr uint32_t kRows = 16384, kExperts = 512, kUsed = 8, kCols = 64;
    const RandomWeight router(WeightType::f32, kExperts, kCols, random);
    const Array<std::byte> weights(gpu(), router.data);
    Weight weight = router.weight;
    weight.data = weights;
    const Array<float> in(gpu(), random.values(size_t{kRows} * kCols));
    const CardRoutes routed(gpu(), kRows, kExperts, kUsed);
    kernels().route({kExperts, kUsed, true, 1}, weight, in, routed.view);
    HostRoutes got(kRows, kExperts, kUsed);
    got.expert = routed.expert.get();
    got.sort();
    EXPECT_EQ(routed.count.get(), got.count);
    EXPECT_EQ(routed.first.get(), got.first);
    EXPECT_EQ(routed.order.get(), got.order);
}

TEST_F(CudaTest, EqualAndBrokenLogitsRouteAsOnTheHost) {
    for (const uint32_t rows : {3u, 20u}) {
        std::vector<float> x(size_t{rows} * 32, 1.0f);
        for (uint32_t i = 0; i < 32; ++i) x[32 + i] = std::nanf("");
        for (uint32_t i = 0; i < 32; ++i) x[64 + i] = 3e38f;
        std::vector<float> router(16 * 32, 1.0f);
        router[5 * 32] = 4;  // one is best, all others are equal
        const Weight weight{reinterpret_cast<const std::byte*>(router.data()), WeightType::f32, 16,
                            32};
        HostRoutes expected(rows, 16, 4);
        host().route({16, 4, true, 1}, weight, x.data(), expected.view);
        const Array<float> in(gpu(), x), weights(gpu(), router);
        const CardRoutes routed(gpu(), rows, 16, 4);
        Routes view = routed.view;
        view.decode = rows <= 8;
        kernels().route(
            {16, 4, true, 1},
            {reinterpret_cast<const std::byte*>(weights.data()), WeightType::f32, 16, 32}, in,
            view);
        EXPECT_EQ(routed.expert.get(), expected.expert);
        if (!view.decode) {
            EXPECT_EQ(routed.order.get(), expected.order);
        }
        EXPECT_LT(distance(routed.weight.get(), expected.weight), 1e-6);
    }
}

TEST_F(CudaTest, RouteShared) {
    Random random(22);
    for (const uint32_t rows : {1u, 8u, 9u, 300u}) {
        const std::vector<float> gate = random.values(2048);
        const std::vector<float> x = random.values(size_t{rows} * 2048);
        HostRoutes expected(rows, 1, 1);
        host().route_shared(gate.data(), x.data(), 2048, expected.view);
        const Array<float> in(gpu(), x), g(gpu(), gate);
        const CardRoutes routed(gpu(), rows, 1, 1);
        Routes view = routed.view;
        view.decode = rows <= 8;
        kernels().route_shared(g, in, 2048, view);
        EXPECT_EQ(routed.expert.get(), expected.expert);
        EXPECT_EQ(routed.count.get(), expected.count);
        EXPECT_EQ(routed.first.get(), expected.first);
        EXPECT_EQ(routed.order.get(), expected.order);
        EXPECT_LT(distance(routed.weight.get(), expected.weight), 1e-7);
    }
}

TEST_F(CudaTest, RoutesOfRowsThatAreNormedFirst) {
    Random random(27);
    for (const uint32_t cols : {2048u, 512u, 5120u})
        for (const uint32_t rows : {1u, 8u}) {
            gpu().reset();
            constexpr uint32_t kExperts = 128, kUsed = 8;
            const std::vector<float> x = random.values(size_t{rows} * cols);
            const std::vector<float> weight = random.values(cols);
            const std::vector<float> router = random.values(size_t{kExperts} * cols);
            const RouterShape shape{kExperts, kUsed, true, 1};
            const auto matrix = [&](const float* data) {
                return Weight{reinterpret_cast<const std::byte*>(data), WeightType::f32, kExperts,
                              cols};
            };
            std::vector<float> norm(x.size());
            HostRoutes routes(rows, kExperts, kUsed);
            host().norm_route_and_fetch(x.data(), weight.data(), 1e-5f,
                                        {norm.data(), nullptr, rows, cols}, shape,
                                        matrix(router.data()), routes.view, {}, nullptr, {});
            const Array<float> in(gpu(), x), w(gpu(), weight), r(gpu(), router),
                out(gpu(), x.size());
            const Array<std::byte> codes(gpu(), rows * kernels().code_bytes(cols));
            const CardRoutes routed(gpu(), rows, kExperts, kUsed);
            Routes view = routed.view;
            view.decode = true;
            kernels().norm_route_and_fetch(in, w, 1e-5f, {out, codes, rows, cols, true}, shape,
                                           matrix(r), view, {}, nullptr, {});
            EXPECT_EQ(routed.expert.get(), routes.expert) << cols << ' ' << rows;
            // Logits are sums of thousands, up to 100 or more, in another order: 1e-7 of that.
            EXPECT_LT(distance(routed.weight.get(), routes.weight), 5e-5) << cols << ' ' << rows;
            EXPECT_LT(distance(out.get(), norm), 1e-6) << cols << ' ' << rows;
            expect_decode_codes(codes.get(), out.get(), rows, cols);
        }
}

}  // namespace
}  // namespace granary::gpu::cuda::test
